"""Emulated hosts: a computer with KVM or Xen inside QEMU's emulation, on any computer."""
