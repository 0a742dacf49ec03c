#!/bin/sh
# Slurm's HealthCheckProgram: drains this node when nodedoctor finds that something failed, and gives it back
# when that is repaired. Only drains of its own are ended; what somebody else drained stays drained.

nodedoctor=/usr/local/bin/nodedoctor
node=${SLURMD_NODENAME:-$(hostname -s)}
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
export PATH

# Slurm kills this script after 60 seconds. --passive: jobs may be running.
summary=$("$nodedoctor" --summary --passive --deadline 45)
code=$?

if ! shown=$(scontrol -o show node "$node" 2>&1); then
    logger -t nodedoctor -- "$shown: $summary"
    exit 0
fi
state=$(printf '%s\n' "$shown" | sed -n 's/.* State=\([^ ]*\).*/\1/p')
reason=$(printf '%s\n' "$shown" | sed -n 's/.* Reason=//p')

case $code in
0 | 1) # nothing failed
    case $reason in
    "nodedoctor: "*)
        case $state in
        *DRAIN*) scontrol update NodeName="$node" State=RESUME ;;
        esac
        ;;
    esac
    ;;
2) # something failed
    case $state:$reason in
    *DRAIN*:"Prolog error"*) # of prolog.sh, or another prolog failed on a node that is sick: say of what
        scontrol update NodeName="$node" Reason="nodedoctor: $summary"
        ;;
    *DRAIN*:*) ;;
    *) scontrol update NodeName="$node" State=DRAIN Reason="nodedoctor: $summary" ;;
    esac
    ;;
*) # 3: something hung or crashed; 127: not installed; ...: no verdict, so nothing changes
    logger -t nodedoctor -- "exit code $code: $summary"
    ;;
esac

# Always 0: until a health check succeeds, a slurmd that starts does not register.
exit 0
