"""Batches and their cells: start machines, measure, remove them, and record events."""
