"""Flight-recorder dumps: what every rank had enqueued, started and completed when it gave up."""
