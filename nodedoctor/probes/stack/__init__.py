"""Programs that ask about the Python that trains."""
