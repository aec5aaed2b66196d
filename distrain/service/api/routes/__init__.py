"""The routes of the API, one module for each kind of thing; each has a `router`."""

from fastapi import APIRouter

from distrain.service.api.routes import (
    artifacts,
    audit,
    clusters,
    events,
    health,
    jobs,
    logs,
    metrics,
    people,
    projects,
    submitting,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    submitting.router,
    jobs.router,
    people.router,
    projects.router,
    clusters.router,
    audit.router,
    logs.router,
    events.router,
    metrics.router,
    artifacts.router,
    webhooks.router,
    health.router,
)
