"""How fast memory is, by bandwidth and by latency."""
