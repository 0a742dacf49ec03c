"""Mailed outputs, bug reports and logs: recognised by content, and judged together."""
