"""Any source into lines: decoded, unpacked, unwrapped, its prefix taken off, broken lines joined."""
