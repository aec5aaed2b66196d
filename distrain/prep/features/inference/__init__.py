"""A features document inferred from a sample of a table."""
