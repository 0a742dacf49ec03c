"""What probes, facts and checks are made of: how they are declared, remembered and compared with peers."""
