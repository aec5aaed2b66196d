"""Commands that plan and train a job."""

__all__: list[str] = []
