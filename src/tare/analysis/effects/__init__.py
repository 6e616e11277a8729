"""From values by block to effects, intervals, families of tests, verdicts and advice."""
