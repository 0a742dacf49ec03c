#!/bin/sh
# Submits a job and does with it what `nodedoctor triage --decide` says, at most TRIES times:
#   retry.sh train.sbatch [ARGUMENT ...]
# Leave out --output in train.sbatch; each try has a folder of logs. Ends with 0 when the job did, else with the
# decision: 10 or 11 when the tries are used up, 12 the same will happen again, 13 look first.
nodedoctor=/usr/local/bin/nodedoctor
tries=${TRIES:-3}
folder=${LOGS:-./logs}
bad=$folder/bad-nodes.txt

# For sbatch a preempted job is over before its exit code is there, which then is 0.
completed() {
    while
        state=$(scontrol show job "$1" | sed -n 's/^ *JobState=\([A-Z]*\).*/\1/p')
        [ "$state" = COMPLETING ]
    do
        sleep 1
    done
    [ "${state:-COMPLETED}" = COMPLETED ]
}

[ $# -gt 0 ] || { echo "usage: retry.sh train.sbatch [ARGUMENT ...]" >&2; exit 64; }
code=74
try=0
while [ "$try" -lt "$tries" ]; do
    try=$((try + 1))
    log=$folder/try-$try
    mkdir -p "$log" || exit 74
    without=
    [ -s "$bad" ] && without=--exclude=$bad
    # --no-requeue: Slurm would start a job again beside this loop.
    job=$(sbatch --parsable --wait --no-requeue --output="$log/%j.log" ${without:+"$without"} "$@") &&
        completed "${job%%;*}" && exit 0
    code=0
    "$nodedoctor" triage "$log" --no-node --decide --exclude "$bad" || code=$?
    case $code in
        10 | 11) ;;
        0) exit 13 ;; # it failed or was cancelled, and its log shows no failure
        *) exit "$code" ;;
    esac
done
echo "retry.sh: $tries tries are used up" >&2
exit "$code"
