"""Records of everything that Tare creates and changes on a host, and their undoing."""
