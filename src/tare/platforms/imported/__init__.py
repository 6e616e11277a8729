"""What other tools say of a virtual machine, as an arm of a study: ``tare import``."""
