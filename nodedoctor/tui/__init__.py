"""The terminal interface. Nothing outside this package imports it, except to open it."""
