"""A study in sessions: what is up of its computer, what comes next, and what is to be swapped."""
