"""The live image: one disc for any hypervisor and for bare metal, which dials back to its host."""
