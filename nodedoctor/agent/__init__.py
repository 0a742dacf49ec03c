"""Tools for coding agents: `nodedoctor mcp`, read-only, over standard input and output."""
