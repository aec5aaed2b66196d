"""Commands that use saved models."""
