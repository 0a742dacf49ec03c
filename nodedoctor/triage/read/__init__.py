"""Any source into events: found, unpacked, searched and read in bounded time."""
