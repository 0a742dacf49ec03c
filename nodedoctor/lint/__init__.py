"""What is wrong with an environment variable: its name, its value, what it names, what is set beside it."""
