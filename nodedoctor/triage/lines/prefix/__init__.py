"""Prefixes that are known, by who puts them there."""
