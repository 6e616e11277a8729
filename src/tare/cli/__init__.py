"""The command `tare`: one file per group of commands, thin; nothing imports it."""
