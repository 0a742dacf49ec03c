"""GPUs as NVIDIA's management library (NVML) describes them."""
