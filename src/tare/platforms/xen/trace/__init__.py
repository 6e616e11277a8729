"""What Xen's own trace tells: which vCPU had a CPU when, read from ``xentrace``'s records."""
