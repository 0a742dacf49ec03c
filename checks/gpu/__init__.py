"""Checks of GPUs and their links."""
