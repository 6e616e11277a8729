"""The live image: one disc for any hypervisor and for bare metal; it connects back to its host."""
