"""Synchronises clusters and the database: sends jobs and orders, and writes jobs' states."""
