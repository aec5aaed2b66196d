"""The routes of the API, one module for each kind of thing; each has a `router`."""

from fastapi import APIRouter

from distrain.service.api.routes import (
    audit,
    clusters,
    jobs,
    me,
    projects,
    submitting,
    tokens,
)

ROUTERS: tuple[APIRouter, ...] = (
    submitting.router,
    jobs.router,
    me.router,
    tokens.router,
    projects.router,
    clusters.router,
    audit.router,
)

__all__ = ["ROUTERS"]
