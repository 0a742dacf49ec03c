"""The only place that decides which rank, host and process a message is from."""
