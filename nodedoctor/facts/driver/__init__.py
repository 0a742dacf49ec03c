"""Facts of NVIDIA's driver."""
