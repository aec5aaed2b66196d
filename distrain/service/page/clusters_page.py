"""The page of clusters, with links for admins to the Dask dashboard of each."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from distrain.service.access.rules import Action
from distrain.service.api.dependencies import Call
from distrain.service.api.routes.clusters import clusters_of
from distrain.service.page.rendering import PageRoute, page

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/clusters")
def clusters(call: Call) -> HTMLResponse:
    call.require(Action.SEE_CLUSTERS)
    shown = [(cluster, cluster_state(cluster.details)) for cluster in clusters_of(call)]
    return page(call.request, "clusters.html", call.caller, clusters=shown)


def cluster_state(state: Mapping[str, Any]) -> str:
    if not state:
        return "unknown"
    if state.get("reachable"):
        return "up"
    return "starting" if state.get("starting") else "unreachable"
