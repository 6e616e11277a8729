"""Real programs of the toolbox."""
