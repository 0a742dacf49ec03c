"""Decides for every error of the judged run, once, whether it mattered, and says why not."""
