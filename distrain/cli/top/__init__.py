"""`distrain top`: a scheduler's jobs on the terminal, as they run."""

__all__: list[str] = []
