"""Generates Criteo-shaped data of any size with a known Bayes-optimal AUC."""
