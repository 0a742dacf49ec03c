"""Programs that ask about the kernel's log."""
