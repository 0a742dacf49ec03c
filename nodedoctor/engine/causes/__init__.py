"""The diagnosis: which findings follow from which, what the causes are called, and what devices there are."""
