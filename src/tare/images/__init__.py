"""Build the files that a machine boots: kernel, modules and initramfs."""
