"""The table of a scheduler's HTTP routes, a part of the job service's `/v1` API.

Tornado serves them below `/distrain` (`handler.py`). The same requests can be made over Dask's own
connections (`answer_over_comm`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import ValidationError

from distrain.errors import problems_in
from distrain.jobs.run_paths import JOB_ID
from distrain.jobs.states import JobState
from distrain.scheduler.http.bodies import Body, PreflightOrder, Refusal, dumps
from distrain.scheduler.http.coordinator_api import CoordinatorApi
from distrain.scheduler.http.job_commands import ORDERS, Order

PREFIX = "/distrain"
LISTED = "docs/monitoring.md lists the routes of a scheduler."
_MOST_COLLECT_MS = 60_000
_MOST_LISTED = 200

_BODY = TypeVar("_BODY", bound=Body)


@dataclass(frozen=True)
class Request:
    """An HTTP request, or an equal request over Dask's connections."""

    method: str
    path: str  # below `PREFIX`, such as `/v1/jobs`
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)  # values by parameter
    content: bytes = b""  # the body

    def text(self, name: str) -> str:
        """Return the last value of a query parameter; "" if it is not given."""
        return (self.query.get(name) or [""])[-1]

    def number(self, name: str, default: int) -> int:
        """Return a query parameter as an integer of at least 0; `default` if it is not given.

        Raises `Refusal` if the parameter is anything else, or has more than 18 digits.
        """
        text = self.text(name) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Refusal(400, "bad_request", f"{name}: {text!r} is not an integer", LISTED)
        return int(text)

    def body(self, kind: type[_BODY]) -> _BODY:
        """Return the JSON body as an object of the class `kind`; raises `Refusal` if invalid."""
        try:
            return kind.model_validate_json(self.content)
        except ValidationError as error:
            raise Refusal(400, "bad_request", "\n".join(problems_in(error)), LISTED) from None


Answer = tuple[int, str | dict[str, Any]]
"""The HTTP status, and the answer's JSON as text or values."""


@dataclass(frozen=True)
class Route:
    """A route: its method and path, and the function that answers its requests."""

    method: str
    pattern: str  # a regular expression for the whole path
    act: Callable[..., Answer]  # called with the API, the request and the pattern's groups
    # whether it changes jobs, or only a service or an operator calls it; see `access.why_refused`
    is_order: bool = False


def _jobs(api: CoordinatorApi, request: Request) -> Answer:
    states, text = request.query.get("state") or (), request.text("text").casefold()
    if unknown := set(states) - {*JobState}:
        states_here = f"A scheduler's jobs are in one of {', '.join(JobState)}."
        raise Refusal(400, "bad_request", f"state: {min(unknown)!r} is not a state", states_here)
    most = min(request.number("limit", 50), _MOST_LISTED)
    jobs = api.monitor.jobs()["jobs"]
    ids = [job["id"] for job in jobs]
    cursor = request.text("cursor")
    wanted = [
        job
        for job in jobs[ids.index(cursor) + 1 if cursor in ids else 0 :]
        if (not states or job["state"] in states)
        and any(text in job[name].casefold() for name in ("id", "name"))
    ]
    more = wanted[most - 1]["id"] if len(wanted) > most > 0 else None
    return 200, {"jobs": wanted[:most], "next_cursor": more}


def _job(api: CoordinatorApi, request: Request, job_id: str) -> Answer:
    ranks = request.text("ranks") or "shown"
    if ranks not in ("shown", "all"):
        hint = "Pass `all`, or leave `ranks` out to get at most 64 ranks."
        raise Refusal(400, "bad_request", f"ranks: {ranks!r} is neither shown nor all", hint)
    return 200, api.job(job_id, all_ranks=ranks == "all")


def _curves(api: CoordinatorApi, request: Request, job_id: str) -> Answer:
    try:
        document = api.monitor.metrics(job_id, request.text("since") or None)
    except ValueError as error:
        hint = "Pass `cursor` of the last answer, or leave `since` out to get all."
        raise Refusal(400, "bad_request", f"since: {error}", hint) from None
    return 200, document or api.job(job_id)  # raises `Refusal` for an unknown job


def _view(api: CoordinatorApi, request: Request, job_id: str) -> Answer:
    return 200, api.coordinator.view(job_id, request.number("since", 0)) or api.job(job_id)


def _order(
    kind: type[Order],
    carry_out: Callable[..., int],
    api: CoordinatorApi,
    request: Request,
    job_id: str,
) -> Answer:
    return carry_out(api.commands, job_id, request.body(kind)), api.job(job_id)


def _changes(api: CoordinatorApi, request: Request) -> Answer:
    collect_s = 1e-3 * min(request.number("collect_ms", 0), _MOST_COLLECT_MS)
    return 200, api.changes_text(request.number("since", 0), request.text("epoch"), collect_s)


def _workers(api: CoordinatorApi, _: Request) -> Answer:
    return 200, {"workers": api.workers()}


def _validate(api: CoordinatorApi, request: Request) -> Answer:
    if request.text("data") != "true":
        hint = "Pass `data=true`; a service checks a spec without looking at data."
        raise Refusal(400, "bad_request", "a scheduler only has workers check data", hint)
    order = request.body(PreflightOrder)
    preflight_id = api.preflights.start(order.spec, order.owner)
    return 202, {"id": preflight_id, "url": f"/v1/preflights/{preflight_id}"}


def _preflight(api: CoordinatorApi, request: Request, preflight_id: str) -> Answer:
    return 200, api.preflights.document(preflight_id, request.text("owner"))


_ONE = rf"/v1/jobs/({JOB_ID})"

ROUTES = (
    Route("GET", r"/v1/jobs", _jobs),
    Route("GET", _ONE, _job),
    Route("GET", rf"{_ONE}/curves", _curves),
    Route("GET", rf"{_ONE}/view", _view),
    *(
        Route(method, _ONE + below, partial(_order, kind, carry_out), is_order=True)
        for method, below, kind, carry_out in ORDERS
    ),
    Route("GET", r"/v1/changes", _changes, is_order=True),
    Route("GET", r"/v1/workers", _workers, is_order=True),
    Route("POST", r"/v1/jobs:validate", _validate, is_order=True),
    Route("GET", r"/v1/preflights/([0-9a-f]{32})", _preflight, is_order=True),
)


def route_of(method: str, path: str) -> tuple[Route, tuple[str, ...]]:
    """Return the route of a request, and the values of the groups in its pattern.

    Raises `Refusal` if no route has this path, or none of its routes has this method.
    """
    found = [(route, match) for route in ROUTES if (match := re.fullmatch(route.pattern, path))]
    for route, match in found:
        if route.method == ("GET" if method == "HEAD" else method):
            return route, match.groups()
    if not found:
        raise Refusal(404, "not_found", f"there is nothing at {PREFIX}{path}", LISTED)
    detail = f"{method} is not for {PREFIX}{path}"
    raise Refusal(405, "method_not_allowed", detail, LISTED, allow=[one.method for one, _ in found])


def answer(api: CoordinatorApi, request: Request) -> tuple[int, str]:
    """Carry out a request; return the HTTP status and the JSON text, also for a `Refusal`."""
    try:
        route, words = route_of(request.method, request.path)
        status, document = route.act(api, request, *words)
    except Refusal as refusal:
        status, document = refusal.status, refusal.document
    return status, document if isinstance(document, str) else dumps(document)


def answer_over_comm(
    api: CoordinatorApi, method: str, path: str, query: str, content: bytes
) -> dict[str, Any]:
    """Dask RPC: return the HTTP status of the answer as `status`, and its JSON text as `text`.

    `query` is the query string of the URL. All Dask clients may give orders.
    """
    status, text = answer(api, Request(method, path, parse_qs(query), content))
    return {"status": status, "text": text}
