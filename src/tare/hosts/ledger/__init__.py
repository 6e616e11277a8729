"""What Tare creates and changes on a host: noted before it is made, and undone from the notes."""
