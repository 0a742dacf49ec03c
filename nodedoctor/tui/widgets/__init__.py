"""One widget per file; each draws its own lines, because a widget per line costs start-up time and bytes."""
