#!/bin/sh
# In a job with more nodes than it needs: looks at all of them and runs on the best.
#   sbatch --nodes=18 vetted.sh 16 train.sh      16 nodes are needed, 2 are spare
nodedoctor=/usr/local/bin/nodedoctor
need=$1
shift

good=$(mktemp) || exit 74
trap 'rm -f "$good"' EXIT
# Passing nodes come with the fewest warnings first; 2: fewer pass than are needed.
"$nodedoctor" fleet --slurm --gate --need "$need" --passing "$good" || exit
srun --nodes="$need" --nodelist="$(head -n "$need" "$good" | paste -sd, -)" "$@"
