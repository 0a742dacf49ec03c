"""GPUs as nvidia-smi prints them."""
