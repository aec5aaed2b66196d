"""The routes of the API, one module for each kind of thing; each has a `router`."""

from fastapi import APIRouter

from distrain.service.api.routes import me

ROUTERS: tuple[APIRouter, ...] = (me.router,)

__all__ = ["ROUTERS"]
