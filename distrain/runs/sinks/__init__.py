"""Passes a run's records to other tools: TensorBoard, MLflow, or one of your own."""
