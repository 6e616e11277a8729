"""Certificates that owners of hypervisors made on their own hosts and sent: self-reported."""
