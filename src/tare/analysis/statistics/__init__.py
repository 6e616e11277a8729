"""The statistics: pure functions on arrays, which know nothing of runs."""
