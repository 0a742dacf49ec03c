#!/bin/sh
# Slurm's Prolog: may a new job start on this node? Only exit code 2 of the gate refuses: a lost GPU, a driver that
# hangs. What one job did to itself (its memory limit, its variables) keeps no next job away.

nodedoctor=/usr/local/bin/nodedoctor
mark=/run/nodedoctor/refused
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
export PATH

# The job waits for this: BatchStartTimeout is 10 seconds unless slurm.conf says more.
line=$("$nodedoctor" --gate --deadline 8)
case $? in
2) ;;
0 | 4)
    rm -f "$mark"
    exit 0
    ;;
*) # 3: not judged; 127: not installed; ...: nothing is known of the node, so the job starts
    logger -t nodedoctor -- "not judged before a job: $line"
    exit 0
    ;;
esac

# No scontrol here: a prolog runs on every node of a job at once, and Slurm's guide says to call none of its
# commands in one. Slurm drains the node for "Prolog error"; the mark tells the health check that this was ours.
mkdir -p "${mark%/*}" 2> /dev/null && : > "$mark"
echo "nodedoctor: $line"
logger -t nodedoctor -- "refused a job: $line"
exit 1
