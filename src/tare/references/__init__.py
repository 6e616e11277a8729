"""Published values, and how they meet a run's own."""
