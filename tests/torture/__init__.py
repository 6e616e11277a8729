"""Random faults over short runs: `make torture` makes the table of `tare help testing`."""
