"""Pages as answers: routes, templates, their filters, and headers that keep them to themselves."""

from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from distrain.formatting import byte_size, count, duration, number, percent, score, scores
from distrain.jobs.documents import Job as JobAnswer, utc
from distrain.service.access.sessions import COOKIE, csrf_token
from distrain.service.api.problems import CODES, Problem
from distrain.service.values import Principal

_HERE = Path(__file__).parent
STATIC = _HERE / "static"

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Vary": "Cookie",
}


def state(word: str) -> Markup:
    """A state with its colour; states of later versions have none."""
    css = "".join(c for c in word if c.isalnum() or c in "-_")
    return Markup('<span class="state state-{}">{}</span>').format(css, escape(word))


def moment(text: str | None) -> str:
    """A time of the API, to the second.

    >>> moment("2026-03-01T12:30:00.250000Z")
    '2026-03-01 12:30:00 UTC'
    """
    return f"{text[:19].replace('T', ' ')} UTC" if text else "-"


def lasted_s(job: JobAnswer) -> float | None:
    if not job.started_at:
        return None
    end = datetime.fromisoformat(job.finished_at) if job.finished_at else datetime.now(UTC)
    return max(0.0, (end - datetime.fromisoformat(job.started_at)).total_seconds())


def at(seconds: float | None) -> str:
    """A unix time, to the second.

    >>> at(0.25)
    '1970-01-01 00:00:00 UTC'
    """
    return moment(utc(seconds))


def age(text: str | None) -> str:
    if not text:
        return "-"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
    return duration(max(0.0, seconds), 0)


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        state=state,
        moment=moment,
        lasted_s=lasted_s,
        scores=scores,
        score=score,
        at=at,
        age=age,
        count=count,
        number=number,
        percent=percent,
        duration=duration,
        byte_size=byte_size,
    )
    return found


_TEMPLATES = _environment()


def page(
    request: Request, template: str, principal: Principal | None, status: int = 200, **values: Any
) -> HTMLResponse:
    """A rendered template; the forms of a session carry its CSRF token."""
    cookie = request.cookies.get(COOKIE)
    text = _TEMPLATES.get_template(template).render(
        principal=principal,
        csrf=csrf_token(request.app.state.parts.key, cookie) if cookie and principal else "",
        here=request.url.path,
        **values,
    )
    return HTMLResponse(text, status, headers=_HEADERS)


def url_with(request: Request, changes: Mapping[str, object]) -> str:
    kept = {k: v for k, v in request.query_params.items() if v} | dict(changes)
    return f"{request.url.path}?{urlencode(kept)}"


class PageRoute(APIRoute):
    """A route whose refusals are pages; callers without a session are sent to `/login`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await answer(request)
            except Problem as problem:
                return _shown(request, problem)
            except RequestValidationError:
                return _shown(request, Problem("bad_request", "the address has a mistake"))

        return handler


def _shown(request: Request, problem: Problem) -> Response:
    if problem.code == "unauthenticated":
        here = request.url.path
        if request.url.query:
            here += f"?{request.url.query}"
        return RedirectResponse(f"/login?next={quote(here, safe='')}", 303)
    shown = page(
        request,
        "problem.html",
        None,
        problem.status,
        title=CODES[problem.code][1],
        detail=problem.detail,
        hint=problem.hint,
    )
    shown.headers.update(problem.headers)
    return shown
