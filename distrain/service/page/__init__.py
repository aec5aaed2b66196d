"""The web page: jobs, queue, clusters, rendered on the server."""

from distrain.service.page.mounting import add_pages

__all__ = ["add_pages"]
