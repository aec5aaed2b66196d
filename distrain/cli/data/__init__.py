"""Commands that generate, prepare and pack data, and show its schema."""
