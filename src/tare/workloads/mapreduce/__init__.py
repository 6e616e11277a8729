"""Hadoop's MapReduce: the configuration of a cluster, its jobs, and the results they report."""
