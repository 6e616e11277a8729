"""Builds what boots: kernel, modules, initramfs."""
