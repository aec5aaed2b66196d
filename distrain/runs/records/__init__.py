"""Merges the reports of ranks into a job's records."""
