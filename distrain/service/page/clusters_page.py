"""The page of clusters, with links for admins to the Dask dashboard of each."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from distrain.service.access.rules import Action
from distrain.service.api.dependencies import Call
from distrain.service.page.rendering import PageRoute, page

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/clusters")
def clusters(call: Call) -> HTMLResponse:
    call.require(Action.SEE_CLUSTERS)
    caller, rows = call.caller, {row.name: row for row in call.store.clusters()}
    shown = []
    for name, profile in call.service.settings.clusters.items():
        if profile.projects and not caller.is_admin and not set(profile.projects) & {*caller.roles}:
            continue
        row = rows.get(name)
        state: Mapping[str, Any] = row.state if row else {}
        shown.append(
            {
                "name": name,
                "kind": profile.kind,
                "state": cluster_state(state),
                "message": state.get("message") or "",
                "observed_at_s": row.observed_at_s if row else None,
                "workers": state.get("workers") or {},
                # The dashboard shows the jobs of all users, and requires its own token.
                "scheduler_url": state.get("url") if caller.is_admin else None,
            }
        )
    return page(call.request, "clusters.html", caller, clusters=shown)


def cluster_state(state: Mapping[str, Any]) -> str:
    if not state:
        return "unknown"
    return str(state.get("phase") or ("up" if state.get("reachable") else "unreachable"))
