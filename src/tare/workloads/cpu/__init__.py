"""Arithmetic: how often per second a verified piece of work is done."""
