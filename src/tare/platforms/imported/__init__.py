"""Descriptions of a virtual machine by other tools, converted to an arm: ``tare import``."""
