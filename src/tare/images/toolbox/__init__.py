"""The toolbox: the applications as one read-only file system, the same for every machine."""
