"""Children: commands that may never return are run, followed and left behind here, and nowhere else."""
