"""Checks of the host and the container."""
