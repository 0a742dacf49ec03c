"""Checks of what was measured under load."""
