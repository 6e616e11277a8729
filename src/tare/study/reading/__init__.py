"""Reading of YAML, the command line and hosts files; errors name file, line and key."""
