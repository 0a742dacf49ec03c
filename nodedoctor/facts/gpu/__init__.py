"""Facts of GPUs: what NVML and nvidia-smi say of them."""
