"""A run from its command to its last words: session, folder, execution, interruption, resume."""
