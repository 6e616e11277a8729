"""Several runs, hosts or sessions: changes between them, history, and gates."""
