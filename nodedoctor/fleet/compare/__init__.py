"""Nodes compared: what is alike, and which node is different."""
