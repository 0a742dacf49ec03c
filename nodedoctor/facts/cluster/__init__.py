"""Facts of Ray and Slurm on this node."""
