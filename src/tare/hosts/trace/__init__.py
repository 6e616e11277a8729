"""What a host's kernel tells of its threads: scheduling, interrupts, run delay."""
