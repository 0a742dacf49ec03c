"""Lines as the processes printed them, without envelopes, prefixes and broken ends."""
