"""Checks of a machine and of a cluster, each of which says how to mend what it finds."""
