"""The pages of published sources: their tables and figures, filled from a run."""
