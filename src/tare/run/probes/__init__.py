"""The probes that observe a cell, and the stack that begins and ends them together."""
