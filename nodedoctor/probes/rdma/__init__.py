"""Programs that ask about RDMA adapters."""
