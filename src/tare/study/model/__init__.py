"""The model of a study file: its typed parts and their allowed values."""
