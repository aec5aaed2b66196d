"""A rank's process: trains, sends events, executes commands and explains failures."""
