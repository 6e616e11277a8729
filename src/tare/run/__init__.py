"""Execution of a plan: blocks, batches and cells; resume and clean-up."""
