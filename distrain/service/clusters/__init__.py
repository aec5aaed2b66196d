"""Where the service's clusters come from, and how their schedulers are asked over HTTP."""

__all__: list[str] = []
