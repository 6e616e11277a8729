"""Long series of durations: summaries, quantiles, close-ups, warm-up."""
