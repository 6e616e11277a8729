"""Incus and LXD: Tare creates and removes virtual machines and containers over their REST API."""
