"""The processes of `distrain serve`: the API, the reconciler, and who starts and watches them."""

__all__: list[str] = []
