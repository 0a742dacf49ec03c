"""Nodes asked through Slurm."""
