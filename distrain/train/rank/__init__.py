"""A rank's process: events out, commands in, failures explained."""
