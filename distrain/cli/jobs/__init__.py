"""Commands that show the jobs of a scheduler, follow them and stop them."""

__all__: list[str] = []
