"""The engine in a process of its own, and the children that read files for the screens."""
