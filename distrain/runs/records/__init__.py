"""Merges the reports of ranks into a job's records; keeps the reports, and merges them again."""
