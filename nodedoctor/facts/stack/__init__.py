"""Facts of the training Python."""
