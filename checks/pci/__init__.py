"""Checks of the PCI bus."""
