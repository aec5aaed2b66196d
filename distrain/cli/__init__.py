"""The command line: one command per file, which takes options and prints text or JSON."""

__all__: list[str] = []
