"""Checks of the kernel's log."""
