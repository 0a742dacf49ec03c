"""Facts of the Python that trains."""
