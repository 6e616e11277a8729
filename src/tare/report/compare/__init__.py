"""Two runs compared: the page of changes, gates, doubts, and JSON."""
