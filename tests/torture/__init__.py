"""Random faults over short runs: `make torture` makes the table of docs/testing.md."""
