"""One rank's run: set-up, steps, evaluation, checkpoints, warm start."""
