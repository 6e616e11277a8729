"""Xen on a host, driven by ``xl`` in dom0: guests of type PV, PVH and HVM."""
