"""Reads and writes run folders: records and summaries, reports on runs, and sinks for records."""
