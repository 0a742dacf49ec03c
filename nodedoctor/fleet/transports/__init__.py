"""Ways to the nodes: ssh, Ray, Slurm, Kubernetes."""
