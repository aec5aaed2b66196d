"""Passes a run's records to other tools: TensorBoard, MLflow, or a user's own sink."""
