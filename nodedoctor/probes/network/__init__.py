"""Programs that ask about the network."""
