"""Programs that ask about the host."""
