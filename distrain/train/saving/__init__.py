"""A training's checkpoints and models: when they are written, their content, and resuming."""
