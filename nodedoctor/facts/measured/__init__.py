"""Facts of what was measured under load."""
