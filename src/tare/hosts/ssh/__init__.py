"""Computers that are reached over SSH connections, which may break and be restored."""
