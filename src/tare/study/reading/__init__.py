"""From YAML, the command line and hosts files to a typed study; errors name file, line and key."""
