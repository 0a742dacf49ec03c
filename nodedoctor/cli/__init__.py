"""The command line: what was asked for, done, and shown."""
