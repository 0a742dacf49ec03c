"""Whatever somebody mailed: outputs, bug reports and logs recognised by content, and judged together."""
