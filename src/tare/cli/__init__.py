"""The command `tare`: one short file per group of commands. No other part of Tare imports it."""
