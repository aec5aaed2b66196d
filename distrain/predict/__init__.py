"""Applies saved models: evaluates, predicts, retrieves, exports for serving."""
