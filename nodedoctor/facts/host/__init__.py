"""Facts of the host: its limits, files, processes and settings."""
