"""A job that runs or ran here: its processes while it hangs, and whether logs come from this machine."""
