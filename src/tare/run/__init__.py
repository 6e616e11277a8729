"""Carrying a plan out: blocks, batches and cells; resume and clean-up."""
