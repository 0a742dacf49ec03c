"""Checks of the Python that trains."""
