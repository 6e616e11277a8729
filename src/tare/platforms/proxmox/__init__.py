"""Proxmox VE: machines made and removed over its API."""
