"""Checks a machine or a cluster; each finding includes its remedy."""
