"""Checks a machine or a cluster; each finding says how to correct the fault."""
