"""Facts of the PCI bus."""
