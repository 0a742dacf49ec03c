"""Checks of the training Python."""
