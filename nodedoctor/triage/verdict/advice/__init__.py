"""What to do about a known cause, and what to measure for an unknown one."""
