"""Measures clusters, and evaluates the results: bottlenecks, outliers, thresholds, changes."""
