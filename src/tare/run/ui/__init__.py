"""What a user sees of a run on the terminal: live progress and estimates."""
