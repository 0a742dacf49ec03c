"""What the system around a job says: exits, the kernel, memory, limits, Slurm."""
