"""Checks, builds and calibrations before the first block."""
