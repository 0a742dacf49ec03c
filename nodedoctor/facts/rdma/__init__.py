"""Facts of RDMA adapters and their ports."""
