"""QEMU on a host: KVM if a guest really boots there, or TCG, which emulates the processor."""
