"""Synchronises clusters and the database: sends jobs and orders, and writes observed states."""
