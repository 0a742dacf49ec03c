"""Checks of Ray and Slurm."""
