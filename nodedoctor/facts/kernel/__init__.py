"""Facts of the kernel's log."""
