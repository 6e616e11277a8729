"""Memory bandwidth and memory latency."""
