"""How GPUs are connected: NVLink, peer access, topology."""
