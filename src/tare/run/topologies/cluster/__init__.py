"""A cluster of Hadoop on the machines of one batch: start, jobs and stop."""
