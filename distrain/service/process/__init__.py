"""Runs the processes of `distrain serve`: preparations, the API's server, logs and checks."""
