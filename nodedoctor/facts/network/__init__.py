"""Facts of the network."""
