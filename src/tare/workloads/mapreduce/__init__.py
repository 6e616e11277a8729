"""Hadoop's MapReduce: how a cluster is configured, its jobs, and what they tell."""
