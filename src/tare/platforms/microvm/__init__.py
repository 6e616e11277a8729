"""Firecracker and Cloud Hypervisor: one process for each guest, driven by REST on a UNIX socket."""
