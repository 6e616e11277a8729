"""What is taken from a real-time thread, and how fast threads switch."""
