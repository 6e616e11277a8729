"""Incus and LXD: virtual machines and system containers, made and removed over their REST API."""
