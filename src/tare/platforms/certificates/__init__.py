"""Self-reported certificates, which owners of hypervisors created on their own hosts and sent."""
