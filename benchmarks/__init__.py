"""Benchmarks of Tare, each against its peer in the same run; see docs/benchmarks.md."""
