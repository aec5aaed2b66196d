"""Commands that read run directories."""

__all__: list[str] = []
