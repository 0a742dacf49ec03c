"""What to do once the cause is known, and what to measure when it is not."""
