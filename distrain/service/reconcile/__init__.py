"""Brings clusters to what the database wants of them, and the database to what they have."""
