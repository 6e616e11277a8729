"""A load balancer in the machine: HAProxy between a client and an origin that are outside it."""
