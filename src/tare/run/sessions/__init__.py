"""Studies in sessions: the boot that is up, the next session, and the swaps by the user."""
