"""Batches and their cells: machines are started, measured and removed; results become events."""
