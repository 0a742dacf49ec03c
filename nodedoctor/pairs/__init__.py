"""Which node, which link: nodes measured in pairs, and what the measurements say together."""
