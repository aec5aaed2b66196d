"""The web page: jobs, queue, clusters, rendered on the server."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from distrain.service.page import (
    clusters_page,
    job_list_page,
    job_page,
    login_page,
    queue_page,
)
from distrain.service.page.rendering import STATIC, no_page


def add_pages(app: FastAPI) -> None:
    """Add the pages to the API's application, whose store, sessions and access rules they use."""
    app.add_exception_handler(HTTPException, no_page)
    for part in (login_page, job_list_page, job_page, queue_page, clusters_page):
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
