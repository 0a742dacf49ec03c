"""The reports of nodes: found, read, or the reason why there is none."""
