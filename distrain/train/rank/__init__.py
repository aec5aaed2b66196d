"""A rank's process: sends events, executes commands, explains failures."""
