#!/usr/bin/env bash
# Try nodedoctor on a machine with a GPU, from the single file alone: what it reports, every number measured a
# second way, jobs that end badly on purpose, and what it says of them. Nothing is sent anywhere.
#
#   tools/hardware/run.sh [--pyz FILE] [--python PYTHON] [--out DIR] [--seconds N] [--busy] [--cpu] [--root DIR]
#
#   --pyz FILE       the single file (default: dist/nodedoctor.pyz of this checkout, or beside this script)
#   --python PYTHON  a Python with torch (default: $NODEDOCTOR_TORCH_PYTHON, else the first one found)
#   --out DIR        where the folder and the tar.gz go (default: here)
#   --seconds N      for all of it (default 300, at least 60)
#   --busy           put load on GPUs that somebody uses, too
#   --cpu            rehearse the jobs and measurements on the processor, by gloo
#   --root DIR       rehearse with the /sys /proc /etc of a made-up node
#
# Ends with one folder and one archive below 16 MiB. Every step has a limit of its own; what it started is ended
# with it. No setting is changed, nothing is reset, nothing is installed, no network is used.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
seconds=300 out=$PWD pyz="" torch="${NODEDOCTOR_TORCH_PYTHON:-}" busy="" cpu="" root=()
PACKING=15 # seconds kept for the archive and the summary
KILLING=3  # seconds between TERM and KILL

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit "$1"; }

while [ $# -gt 0 ]; do
  case $1 in
    --pyz) pyz=${2:-}; shift ;;
    --python) torch=${2:-}; shift ;;
    --out) out=${2:-}; shift ;;
    --seconds) seconds=${2:-}; shift ;;
    --root) root=(--root "${2:-}"); shift ;;
    --busy) busy=yes ;;
    --cpu) cpu=cpu ;;
    -h | --help) usage 0 ;;
    *) echo "unknown option $1" >&2; usage 64 >&2 ;;
  esac
  shift || { echo "the last option needs a value" >&2; exit 64; }
done
[[ $seconds =~ ^[0-9]+$ && $seconds -ge 60 ]] || { echo "--seconds $seconds: expected a number from 60" >&2; exit 64; }

# --- what is here ---

first_python() { # EXPRESSION CANDIDATE...: the first interpreter for which it is true
  local expression=$1 python
  shift
  for python in "$@"; do
    [ -n "$python" ] && python=$(command -v "$python") &&
      timeout -k "$KILLING" 30 "$python" -c "import sys; $expression" >/dev/null 2>&1 </dev/null &&
      echo "$python" && return
  done
  return 1
}

newer=(python3.14 python3.13 python3.12 python3.11 python3.10)
with_torch=(python3 python "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "${CONDA_PREFIX:+$CONDA_PREFIX/bin/python}"
  /opt/conda/bin/python /opt/venv/bin/python /usr/local/bin/python3 "${newer[@]}")
python=$(first_python 'assert sys.version_info >= (3, 8)' python3 "$torch" "${newer[@]}" python) ||
  { echo "no Python 3.8 or newer was found" >&2; exit 69; }
doctor=$(first_python 'assert sys.version_info >= (3, 10)' python3 "$torch" "${newer[@]}" python) || doctor=""
[ -n "$torch" ] && with_torch=("$torch")
torch=$(first_python 'import torch.distributed' "${with_torch[@]}") || torch=""
for file in "$pyz" "$here/../../dist/nodedoctor.pyz" "$here/nodedoctor.pyz" "$PWD/nodedoctor.pyz" "$PWD/dist/nodedoctor.pyz"; do
  [ -n "$file" ] && [ -f "$file" ] && break
done
[ -f "$file" ] || { echo "no nodedoctor.pyz: name it with --pyz FILE" >&2; exit 66; }
pyz=$(realpath "$file")

mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 73
name=nodedoctor-hardware-$(date -u +%Y%m%dT%H%M%SZ)-$$
folder=$out/$name
mkdir "$folder" "$folder/jobs" || exit 73
scratch=$(mktemp -d "${TMPDIR:-/tmp}/nodedoctor-hardware.XXXXXX") || exit 73
mark=NODEDOCTOR_HARDWARE_RUN=$name
ends=$((seconds - PACKING))
child=""

# Caches and temporary files of all steps go where they are removed; CUDA numbers GPUs as the driver does.
export TMPDIR=$scratch CUDA_CACHE_PATH=$scratch/cuda TRITON_CACHE_DIR=$scratch/triton XDG_CACHE_HOME=$scratch/cache
export NODEDOCTOR_UNPACK=$scratch/unpacked CUDA_DEVICE_ORDER=PCI_BUS_ID PYTHONDONTWRITEBYTECODE=1
mkdir -p "$NODEDOCTOR_UNPACK"
ulimit -c 0

# --- steps ---

note() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$folder/steps.tsv"; }

# Not `wait`: a program that the kernel cannot kill is left behind, and the rest goes on.
run_bounded() { # SECONDS OUTPUT ERRORS COMMAND...: its exit code, 137 when it could not even be killed
  local limit=$1 output=$2 errors=$3 gives_up
  shift 3
  env "$mark" timeout -k "$KILLING" "$limit" "$@" >"$output" 2>"$errors" </dev/null &
  child=$!
  gives_up=$((SECONDS + limit + KILLING + 2))
  while kill -0 "$child" 2>/dev/null; do
    [ "$SECONDS" -lt "$gives_up" ] || { child=""; return 137; }
    sleep 0.1
  done
  wait "$child"
  local code=$?
  child=""
  return $code
}

sweep() { timeout -k "$KILLING" 8 "$python" "$here/machine.py" sweep "$mark" </dev/null 2>/dev/null | sed "s/^/$1: /" >>"$folder/left.txt"; }

step() { # NAME SECONDS COMMAND...: output in NAME.out (or $to), errors in NAME.err
  local step=$1 limit=$2 left=$((ends - SECONDS)) took result code
  local output=${to:-$folder/$1.out}
  shift 2
  [ "$left" -ge 5 ] || { note "$step" "skipped: no time left" 0 "$limit"; return 1; }
  [ "$limit" -le "$left" ] || limit=$left
  took=$(date +%s%N)
  run_bounded "$limit" "$output" "$folder/$step.err" "$@"
  code=$?
  took=$((($(date +%s%N) - took) / 100000000)) # tenths of a second
  result="exit code $code"
  [ $((took / 10)) -lt "$limit" ] || result="ended at its limit, exit code $code"
  note "$step" "$result" "$((took / 10)).$((took % 10))" "$limit"
  [ -s "$folder/$step.err" ] || rm -f "$folder/$step.err"
  [ -s "$output" ] || rm -f "$output"
  sweep "$step"
  return $code
}

skip() { note "$1" "skipped: $2" 0 0; }

# --- the end, also of a run that is interrupted ---

finish() {
  trap '' INT TERM HUP
  [ -n "$child" ] && kill -TERM "$child" 2>/dev/null && sleep 1
  sweep end
  timeout 5 "$python" "$here/machine.py" shm "$scratch/state.json" </dev/null >"$folder/removed.txt" 2>/dev/null
  [ -s "$folder/removed.txt" ] || rm -f "$folder/removed.txt"
  timeout 12 "$python" "$here/machine.py" changes "$scratch/state.json" </dev/null >>"$folder/left.txt" 2>&1
  timeout 10 "$python" "$here/agreement.py" "$folder" </dev/null >/dev/null 2>>"$folder/errors.txt"
  timeout 10 "$python" "$here/summary.py" "$folder" </dev/null >"$folder/summary.txt" 2>>"$folder/errors.txt"
  [ -s "$folder/errors.txt" ] || rm -f "$folder/errors.txt"
  timeout -k "$KILLING" 30 "$python" "$here/pack.py" "$folder" "$folder.tar.gz" </dev/null || rm -f "$folder.tar.gz"
  rm -rf "$scratch"
  cat "$folder/summary.txt"
  if [ -f "$folder.tar.gz" ]; then echo "$SECONDS s; read it, then give it away: $folder.tar.gz ($(($(stat -c %s "$folder.tar.gz") / 1024)) KiB)"
  else echo "$SECONDS s; not packed, and names of this machine are still in it: $folder"; fi
}
interrupted() { note "the rest" "skipped: interrupted" 0 0; finish; exit "$1"; }
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
trap 'interrupted 129' HUP

# --- what can be done here ---

ask() { # SECONDS COMMAND...: its last line, empty when it fails or does not end
  run_bounded "$1" "$scratch/answer" "$scratch/errors" "${@:2}" && tail -1 "$scratch/answer"
}

run_bounded 30 "$scratch/state.json" "$scratch/errors" "$python" "$here/machine.py" state ||
  echo '{"settings": {}, "shm": []}' >"$scratch/state.json"
run_bounded 20 "$folder/machine.txt" "$scratch/errors" "$python" "$here/machine.py" about
used=$(ask 20 "$python" "$here/machine.py" busy)
[ -z "$busy" ] || used=""
gpus=0 why="" passive=()
if [ -n "$torch" ]; then
  about=$(ask 40 "$torch" -c 'import torch; gpus = torch.cuda.is_available() and torch.cuda.device_count()
nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpus else "-"
print(int(gpus), "GPUs seen by torch", torch.__version__, "CUDA", torch.version.cuda, "NCCL", nccl)')
  gpus=${about%% *}
  [[ $gpus =~ ^[0-9]+$ ]] || { gpus=0 about="torch gave no answer: $(tail -1 "$scratch/errors")"; }
fi
if [ -z "$torch" ]; then why="no torch in ${with_torch[*]}; name a Python that has one with --python"
elif [ -n "$cpu" ]; then why=""
elif [ "$gpus" -eq 0 ]; then why="torch sees no GPU"
elif [ -n "$used" ]; then why="$used; --busy loads GPUs in use"
fi
[ -z "$used" ] || passive=(--passive)
{
  echo "nodedoctor's Python: ${doctor:-none of 3.10 or newer}; torch's: ${torch:-none}"
  [ -z "$torch" ] || echo "$about"
  [ -z "$doctor" ] || ask 30 "$doctor" "$pyz" --version
  [ -z "$why" ] || echo "no load: $why"
} >>"$folder/machine.txt"

# --- the doctor ---

nodedoctor=("$doctor" "$pyz")
whole=("${root[@]}" "${passive[@]}" ${torch:+--python "$torch"} --preview --redact)
if [ -n "$doctor" ]; then
  to=$folder/whole.json step whole 60 "${nodedoctor[@]}" --json --debug-log "$folder/debug.log" "${whole[@]}"
  to=$folder/whole.txt step text 60 "${nodedoctor[@]}" --text "${whole[@]}"
  step record 60 "${nodedoctor[@]}" --summary --record "$folder/recording.zip" "${whole[@]}"
  [ -f "$folder/recording.zip" ] && to=$folder/replay.json step replay 30 "${nodedoctor[@]}" --json --preview --redact --replay "$folder/recording.zip"
  to=$folder/sides.json step sides 30 "$python" "$here/sides.py"
  to=$folder/sides-doctor.json step sides-doctor 30 "${nodedoctor[@]}" --json --redact "${root[@]}" driver.answers
else
  for one in whole text record replay sides-doctor; do skip $one "nodedoctor needs Python 3.10, and none was found"; done
  to=$folder/sides.json step sides 30 "$python" "$here/sides.py"
fi

# --- the same numbers, a second way ---

ranks=$gpus
[ -z "$cpu" ] || ranks=2
[ "$ranks" -le 8 ] || ranks=8
launch() { launched=("$torch" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$@"); }
if [ -n "$why" ]; then
  for one in copies gemm collectives; do skip $one "$why"; done
else
  to=$folder/copies.jsonl step copies 40 "$torch" "$here/measure.py" copies $cpu
  to=$folder/gemm.jsonl step gemm 30 "$torch" "$here/measure.py" gemm $cpu
  # Two ranks on one GPU, each as a host of its own; where NCCL refuses that, too, jobs have one rank.
  [ "$ranks" -gt 1 ] || { ranks=2 alone=yes; }
  launch "$here/measure.py" collectives $cpu
  to=$folder/collectives.jsonl step collectives 40 "${launched[@]}" || [ -z "${alone:-}" ] || ranks=1
fi
echo "RANKS=$ranks" >"$folder/ranks.txt"

# --- jobs that end badly ---

kernel_lines() { timeout -k "$KILLING" 10 dmesg 2>/dev/null </dev/null | grep -E 'NVRM|Xid|Out of memory|oom-kill' ; }
job() { # KIND SECONDS [OPTION...]: run it under nodedoctor, then triage what was kept and the kernel's lines
  local kind=$1 limit=$2 before
  shift 2
  [ -z "$why" ] || { skip "$kind" "$why"; return; }
  [ -n "$doctor" ] || { skip "$kind" "nodedoctor needs Python 3.10, and none was found"; return; }
  case $cpu-$kind in cpu-oom | cpu-assert) skip "$kind" "needs a GPU"; return ;; esac
  before=$(kernel_lines | wc -l)
  launch "$here/job.py" "$kind" $cpu
  to=$folder/jobs/$kind.out step "$kind" "$limit" "${nodedoctor[@]}" run --dir "$folder/jobs/$kind" "$@" -- "${launched[@]}"
  if dmesg >/dev/null 2>&1; then kernel_lines | tail -n +"$((before + 1))" | head -100 >"$folder/jobs/$kind.kernel.txt"
  else echo "the kernel log cannot be read" >"$folder/jobs/$kind.kernel.txt"; fi
  to=$folder/jobs/$kind.triage.json step "$kind-triage" 20 "${nodedoctor[@]}" triage --no-node --redact --json "$folder/jobs/$kind"
}
job hang 80 --hang-after 12 --kill-after 8
job killed 45
job oom 45
job assert 45
[ -s "$folder/jobs/assert.kernel.txt" ] && [ -n "$doctor" ] && to=$folder/xid.json step xid 20 "${nodedoctor[@]}" --json --redact "${root[@]}" kernel.xid

# --- the longest, with the time that is left ---

left=$((ends - SECONDS - 2))
if [ -z "$doctor" ]; then skip deep "nodedoctor needs Python 3.10, and none was found"
elif [ -n "$used" ]; then skip deep "$used; --busy loads GPUs in use"
elif [ "$left" -lt 15 ]; then skip deep "no time left"
else to=$folder/deep.json step deep "$((left + 2))" "${nodedoctor[@]}" --json --deep --deadline "$((left > 120 ? 120 : left))" "${whole[@]}"
fi
[ -s "$folder/deep.json" ] && to=$folder/accept.txt step accept 10 "${nodedoctor[@]}" accept --report "$folder/deep.json"

finish
