"""From a study and a host to a plan: CPUs, placement, blocks, batches and cells."""
