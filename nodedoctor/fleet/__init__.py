"""Many nodes: ask each for its report, put the reports side by side, name the one that is different."""
