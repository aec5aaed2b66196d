"""Infers a features document from a sample of a table."""
