"""Programs run as children: each asks the node one thing and prints it; runnable by hand."""
