"""Any source into events: found, unpacked, searched in bounded time, and put to the job and rank it is of."""
