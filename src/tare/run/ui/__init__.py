"""The display of a run on the terminal: live progress and estimates."""
