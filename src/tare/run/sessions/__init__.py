"""A study in sessions: which boot is up, which session is next, and what the user has to swap."""
