"""Verdicts of other tools, as people paste them."""
