"""Is this node as fast as it must be: every measured rate against a floor, its peers and its own past."""
