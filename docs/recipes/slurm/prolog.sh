#!/bin/sh
# Slurm's Prolog: the quick checks before a job gets this node. When one fails, Slurm drains the node ("Prolog
# error") and puts the job back into the queue; the health check then gives the finding as the reason.

nodedoctor=/usr/local/bin/nodedoctor
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
export PATH

# The job waits for this: BatchStartTimeout is 10 seconds unless slurm.conf says more.
summary=$("$nodedoctor" --summary --passive --tag fast --deadline 8)
[ $? -eq 2 ] || exit 0

# No scontrol here: a prolog runs on every node of a job at once, and Slurm's guide says to call none of its
# commands in one. The reason goes to stdout, and to the log because Slurm keeps no output of a prolog.
echo "nodedoctor: $summary"
logger -t nodedoctor -- "refused a job: $summary"
exit 1
