"""The routes of the API, one module per kind of resource; each has a `router`."""

from fastapi import APIRouter

from distrain.service.api.routes import (
    artifacts,
    clusters,
    events,
    health,
    jobs,
    people,
    projects,
    submitting,
    usage,
)

_IN_ORDER = (
    *(submitting, jobs, people, projects, usage, clusters),
    *(events, artifacts, health),
)
ROUTERS: tuple[APIRouter, ...] = tuple(module.router for module in _IN_ORDER)
