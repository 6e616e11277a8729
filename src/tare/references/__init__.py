"""Published values, and their comparison with a run's own."""
