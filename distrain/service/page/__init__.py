"""The web page: jobs, queue, clusters, rendered on the server."""

from distrain.service.page.mounting import add_pages as add_pages
