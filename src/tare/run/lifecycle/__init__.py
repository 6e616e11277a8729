"""The life cycle of a run: session, folder, execution, interruption and resume."""
