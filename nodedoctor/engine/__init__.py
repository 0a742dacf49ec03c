"""What runs checks: children, sources of observations, plug-ins, sessions, recordings."""
