"""One training step: forward, backward, exchange, update."""
