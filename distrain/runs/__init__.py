"""A run's folder: names, records, summary; reports and sinks made from it."""
