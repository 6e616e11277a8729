"""Roles and their placement on a host's CPUs."""
