"""What fits what: drivers, CUDA, torch, NCCL, the packages on top, and images that promise them."""
