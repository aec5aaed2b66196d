"""Takes jobs over a scheduler's HTTP: put, cancel, changes since a revision."""

__all__: list[str] = []
