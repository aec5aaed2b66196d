"""Measures clusters and judges them: what limits a step, outliers, thresholds, comparisons."""
