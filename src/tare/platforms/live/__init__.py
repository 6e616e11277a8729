"""The bare machine, booted by its owner from the live image, which dials back to be measured."""
