"""The web page: jobs, queue, clusters, rendered on the server."""

__all__: list[str] = []
