"""Machines and what is outside of them, over a network."""
