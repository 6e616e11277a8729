"""What is taken from a real-time thread, how late it wakes up, and how fast threads switch."""
