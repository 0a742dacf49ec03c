"""Decides once for every error of the judged run whether it mattered, and why not."""
