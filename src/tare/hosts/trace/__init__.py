"""Scheduling, interrupts and run delay of threads, as a host's kernel reports them."""
