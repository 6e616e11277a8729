"""Convert other tools' descriptions of a virtual machine to an arm: ``tare import``."""
