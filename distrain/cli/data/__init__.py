"""Commands that make data: generate it, prepare it, pack it; and show its schema."""
