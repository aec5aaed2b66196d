"""A features document from a sample of a table."""
