"""Guests that libvirt runs: domains of Tare's own, made by its API and removed."""
