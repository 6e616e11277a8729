"""QEMU on a host: KVM where a guest really boots, or TCG, which emulates the processor."""
