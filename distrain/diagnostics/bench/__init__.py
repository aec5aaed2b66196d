"""Measures clusters and evaluates them: a step's bottleneck, outliers, thresholds, comparisons."""
