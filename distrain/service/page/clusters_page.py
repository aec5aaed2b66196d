"""The page of clusters, and the way to the Dask dashboard of each.

A dashboard shows the jobs of everybody, so admins alone get there. Whoever runs code on a cluster
can change what its dashboard sends, so that is shown in a sandbox that has no part in the session:
addresses below `/dashboards` carry a ticket, and cookies mean nothing there.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from distrain.errors import DistrainError
from distrain.service.access.rules import Action
from distrain.service.access.sessions import sign, signed_text
from distrain.service.api.dependencies import ApiParts, Call, Service
from distrain.service.api.problems import Problem, not_found
from distrain.service.clusters.choosing import make_launcher
from distrain.service.page.dashboard_proxy import DashboardProxy
from distrain.service.page.rendering import PageRoute, page
from distrain.service.settings import TlsFiles
from distrain.service.values import Principal

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
                "state": _state(state),
                "message": state.get("message") or "",
                "observed_at_s": row.observed_at_s if row else None,
                "workers": state.get("workers") or {},
                "dashboard": caller.is_admin,
            }
        )
    return page(call.request, "clusters.html", caller, clusters=shown)


@router.get("/clusters/{name}/dashboard")
@router.get("/clusters/{name}/dashboard/{path:path}")
def dashboard_home(name: str, call: Call, path: str = "") -> RedirectResponse:
    """A ticket to a cluster's dashboard, and the way there."""
    call.require(Action.SEE_CLUSTERS)
    request, service = call.request, call.service
    if not call.caller.is_admin or name not in service.settings.clusters:
        raise not_found(f"dashboard of cluster {name!r}")
    ticket = make_ticket(service.key, name, call.caller, service.now_s())
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/dashboards/{ticket}/{quote(path or 'status')}{query}", 303)


@router.get("/dashboards/{ticket}/{path:path}")
async def dashboard(request: Request, ticket: str, path: str, service: Service) -> Response:
    name = await run_in_threadpool(cluster_of_ticket, service, ticket)
    if name is None:
        raise not_found("dashboard; open it anew from the page of clusters")
    proxy = await run_in_threadpool(_proxy, request.app, service, name)
    if proxy is None:
        raise Problem("unavailable", f"the scheduler of cluster {name!r} is not running now")
    return await proxy.get(request, path)


@router.websocket("/dashboards/{ticket}/{path:path}")
async def dashboard_socket(browser: WebSocket, ticket: str, path: str) -> None:
    """The messages of such a page; its origin is `null`, and the ticket names the caller."""
    parts: ApiParts = browser.app.state.parts
    name = await run_in_threadpool(cluster_of_ticket, parts, ticket)
    if name is None:
        await browser.close(1008)
        return
    proxy = await run_in_threadpool(_proxy, browser.app, parts, name)
    if proxy is None:
        await browser.close(1013)
        return
    await proxy.connect(browser, path)


def _proxy(app: Any, parts: ApiParts, name: str) -> DashboardProxy | None:
    try:
        found = make_launcher(name, parts.settings, parts.store.service_id).find()
    except DistrainError:
        return None
    if found is None:
        return None
    kept: dict[str, tuple[Any, DashboardProxy]] = app.state.dashboards
    if name not in kept or kept[name][0] != found:
        files = parts.settings.clusters[name].tls
        tls = None if files == TlsFiles() else files.context()
        kept[name] = (found, DashboardProxy(found.url, found.token, tls))
    return kept[name][1]


def _state(state: Mapping[str, Any]) -> str:
    if not state:
        return "unknown"
    return str(state.get("phase") or ("up" if state.get("reachable") else "unreachable"))


TICKET_S: Final = 12 * 3600.0
_PURPOSE = "dashboard"


def make_ticket(key: bytes, cluster: str, caller: Principal, now_s: float) -> str:
    """A ticket for a part of an address; it opens that dashboard and nothing else."""
    text = json.dumps([cluster, caller.user, caller.token_id, now_s + TICKET_S])
    return sign(key, _PURPOSE, text)


def cluster_of_ticket(parts: ApiParts, ticket: str) -> str | None:
    text = signed_text(parts.key, _PURPOSE, ticket)
    if text is None:
        return None
    cluster, user, token_id, end_s = json.loads(text)
    now_s = parts.now_s()
    is_admin = parts.store.principal(user)[0] or user in parts.settings.admins
    if now_s >= end_s or not is_admin or cluster not in parts.settings.clusters:
        return None
    if token_id is not None:
        held = {token.id: token for token in parts.store.tokens(user)}.get(token_id)
        if held is None or not held.is_good(now_s):
            return None
        if end_s - TICKET_S <= (held.signed_out_at_s or 0.0):
            return None
    return str(cluster)
