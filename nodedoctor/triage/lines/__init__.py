"""Lines of any origin as the processes printed them: envelopes, prefixes and broken lines are undone."""
