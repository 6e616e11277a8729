"""The form of a PCI function's address, as the kernel names its folder in sysfs.

Options are checked by it at every command's start, so that this imports nothing.
"""

ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
"""A regular expression: domain, bus, device and function, such as ``0000:03:00.0``."""
