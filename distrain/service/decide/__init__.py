"""Decides what is to be done about jobs and clusters: pure functions of what was seen."""

__all__: list[str] = []
