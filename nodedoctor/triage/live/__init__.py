"""A job that hangs here, and whether logs come from this machine."""
