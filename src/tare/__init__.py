"""Tare measures what virtualization costs."""
