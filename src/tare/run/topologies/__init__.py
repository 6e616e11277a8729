"""Topologies of a cell's machines: single, pair, proxied and cluster."""
