"""The training loop of one rank, from set-up to the last evaluation."""
