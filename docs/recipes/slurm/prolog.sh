#!/bin/sh
# Slurm's Prolog: the quick checks before a job gets this node. When one fails, the node is drained with the
# finding as its reason, and Slurm puts the job back into the queue.

nodedoctor=/usr/local/bin/nodedoctor
node=${SLURMD_NODENAME:-$(hostname -s)}
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
export PATH

# The job waits for this: BatchStartTimeout is 10 seconds unless slurm.conf says more.
summary=$("$nodedoctor" --summary --passive --tag fast --deadline 8)
[ $? -eq 2 ] || exit 0

# Without this the reason would be "Prolog error". It is the only question to the controller, and a rare one.
scontrol update NodeName="$node" State=DRAIN Reason="nodedoctor: $summary"
exit 1
