"""What a host's kernel reports about its threads: scheduling, interrupts, run delay."""
