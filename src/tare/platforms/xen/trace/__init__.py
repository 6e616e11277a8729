"""Xen's own trace: which vCPU had a CPU when, read from ``xentrace``'s records."""
