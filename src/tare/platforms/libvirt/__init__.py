"""Guests that libvirt runs: domains that Tare creates and removes through libvirt's API."""
