"""Commands that use saved models."""

__all__: list[str] = []
