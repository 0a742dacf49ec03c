"""Checks of the NVLink fabric."""
