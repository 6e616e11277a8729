"""The statistics: pure functions on arrays, independent of runs."""
