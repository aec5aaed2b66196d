"""Attaches the gateway to a scheduler that starts with the preload."""

from distributed import Scheduler

from distrain.gateway.gateway import EXTENSION, Gateway
from distrain.monitor import add_routes, watch

_ROUTES = "distrain.gateway.http"
"""The module whose routes Dask takes."""


def install() -> None:
    """Prepare this process: schedulers that start later have the routes; again: no effect."""
    add_routes(_ROUTES)


def open_gateway(scheduler: Scheduler) -> Gateway:
    """Begin to take orders for a scheduler's coordinator; again: the gateway that does already."""
    gateway: Gateway | None = scheduler.extensions.get(EXTENSION)
    if gateway is None:
        gateway = Gateway(scheduler, watch(scheduler))
        coordinator = gateway.coordinator
        coordinator.observers = (*coordinator.observers, gateway.changes)
        coordinator.is_unseen = gateway.changes.is_unseen
        scheduler.extensions[EXTENSION] = gateway
    return gateway
