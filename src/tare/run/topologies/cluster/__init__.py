"""A cluster of Hadoop on the machines of one batch: brought up, given jobs, and stopped."""
