"""Facts of the NVLink fabric."""
