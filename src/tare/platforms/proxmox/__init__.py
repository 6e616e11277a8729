"""Proxmox VE: virtual machines created and removed over its API."""
