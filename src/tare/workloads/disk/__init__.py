"""The machine's own disk."""
