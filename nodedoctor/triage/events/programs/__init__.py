"""What particular programs and vendors print, beside torch, NCCL and Ray."""
