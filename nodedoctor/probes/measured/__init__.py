"""Programs that measure under load."""
