"""What owners of hypervisors tried on hosts of their own, and sent: self-reported."""
