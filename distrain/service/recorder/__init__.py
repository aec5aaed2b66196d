"""Writes the run directories of all jobs, from what their schedulers report."""
