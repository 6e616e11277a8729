"""Benchmarks of Tare, each against its peer in the same run; see `tare help benchmarks`."""
