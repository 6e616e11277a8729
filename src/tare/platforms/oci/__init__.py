"""Containers, run by an OCI runtime."""
