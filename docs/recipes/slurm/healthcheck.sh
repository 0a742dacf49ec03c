#!/bin/sh
# Slurm's HealthCheckProgram: drains this node when new jobs must not start on it, and gives it back when they may
# again. Only drains of its own and of prolog.sh are ended; what somebody else drained stays drained.

nodedoctor=/usr/local/bin/nodedoctor
mark=/run/nodedoctor/refused # of prolog.sh
node=${SLURMD_NODENAME:-$(hostname -s)}
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
export PATH

# Slurm kills this script after 60 seconds.
line=$("$nodedoctor" --gate --deadline 45)
code=$?

if ! shown=$(scontrol -o show node "$node" 2>&1); then
    logger -t nodedoctor -- "$shown: $line"
    exit 0
fi
state=$(printf '%s\n' "$shown" | sed -n 's/.* State=\([^ ]*\).*/\1/p')
reason=$(printf '%s\n' "$shown" | sed -n 's/.* Reason=//p')

change() {
    scontrol update NodeName="$node" "$@"
}

drain() { # unless it is drained already; of a node that prolog.sh refused, say why
    case $state:$reason in
    *DRAIN*:"Prolog error"*)
        change Reason="nodedoctor: $line"
        rm -f "$mark"
        ;;
    *DRAIN*:*) ;;
    *) change State=DRAIN Reason="nodedoctor: $line" ;;
    esac
}

case $code in
0) # new jobs may start
    case $shown in
    *" Comment=nodedoctor: "*) change Comment= ;;
    esac
    case $state:$reason in
    *DRAIN*:"nodedoctor: "*) change State=RESUME ;;
    *DRAIN*:"Prolog error"*) [ ! -e "$mark" ] || change State=RESUME ;;
    esac
    rm -f "$mark"
    ;;
2) drain ;;
4) # to be drained when idle: at once where no job runs, else the comment says so to whoever looks
    case $state in
    *DRAIN* | IDLE*) drain ;;
    *)
        case $shown in
        *" Comment=nodedoctor: $line"*) ;;
        *) change Comment="nodedoctor: $line" ;;
        esac
        ;;
    esac
    ;;
*) # 3: not judged; 127: not installed; ...: no verdict, so nothing changes
    logger -t nodedoctor -- "exit code $code: $line"
    ;;
esac

# Always 0: until a health check succeeds, a slurmd that starts does not register.
exit 0
