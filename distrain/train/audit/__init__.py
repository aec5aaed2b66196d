"""Which rows each step trained on, recorded and checked."""
