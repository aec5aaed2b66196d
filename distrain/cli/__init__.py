"""One command per file, formatting only."""
