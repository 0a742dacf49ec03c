#!/bin/sh
# Custom plug-in of node-problem-detector. Its exit codes: 0 no problem, 1 a problem, 2 not known.
# What stands on standard output becomes the message of the node's condition.

nodedoctor=/usr/local/bin/nodedoctor

# In the detector's container add `--root /host`, with the node's file system mounted there.
"$nodedoctor" --gate --deadline 45
case $? in
0 | 4) exit 0 ;; # 4: drain it when it is idle; the message says why
2) exit 1 ;;
*) exit 2 ;;
esac
