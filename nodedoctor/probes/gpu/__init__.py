"""Programs that ask about GPUs."""
