"""Renders pages: templates and their filters, security headers, and the routes' class."""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
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

from distrain.errors import DistrainError
from distrain.formatting import byte_size, count, duration, number, score, scores, steps
from distrain.jobs.api_answers import Job as JobAnswer, utc
from distrain.jobs.run_paths import id_end
from distrain.service.api.dependencies import caller_now
from distrain.service.api.problems import CODES, Problem, problem_of
from distrain.service.values import Principal
from distrain.version import __version__

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
    """Return a state as HTML with its colour; unknown states have none."""
    css = "".join(c for c in word if c.isalnum() or c in "-_")
    return Markup('<span class="state state-{}">{}</span>').format(css, escape(word))


def own_url(request: Request, public_url: str | None) -> str:
    """Return the service's URL for users: `public_url`, if set, otherwise that of the request."""
    return public_url or str(request.base_url).rstrip("/")


def lasted_s(job: JobAnswer) -> float | None:
    """Return the seconds from a job's start to its end, or to now; `None` before its start."""
    if not job.started_at:
        return None
    end = datetime.fromisoformat(job.finished_at) if job.finished_at else datetime.now(UTC)
    return max(0.0, (end - datetime.fromisoformat(job.started_at)).total_seconds())


def when(text: str | None) -> Markup:
    """Return how long ago a time of the API was, as HTML with the time as its title; `-` for none.

    >>> print(when("2026-03-01T12:30:00Z"))  # doctest: +ELLIPSIS
    <time datetime="2026-03-01T12:30:00Z" title="2026-03-01 12:30:00 UTC">...</time>
    """
    if not text:
        return Markup("-")
    seconds = (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    ago = next((f"{int(seconds // s)} {unit} ago" for s, unit in units if seconds >= s), "just now")
    html = '<time datetime="{}" title="{} UTC">{}</time>'
    return Markup(html).format(text, text[:19].replace("T", " "), ago)


def progress(job: JobAnswer) -> int:
    """Return the share of a job's steps that are done, in whole percent; 0 if unknown.

    >>> progress(JobAnswer(step=50, num_steps=200)), progress(JobAnswer())
    (25, 0)
    """
    return min(100, 100 * (job.step or 0) // job.num_steps) if job.num_steps else 0


def main_score(job: JobAnswer, split: str = "") -> str:
    """Return a job's training AUC as text, or if it is unknown, the loss and the targets' scores.

    If `split` is `valid_`, these are the values of the validation.

    >>> main_score(JobAnswer(auc=0.75, loss=0.5)), main_score(JobAnswer(valid_loss=0.5), "valid_")
    ('0.75000', 'loss 0.50000')
    """
    auc, loss, targets = (getattr(job, split + name) for name in ("auc", "loss", "targets"))
    return number(auc) if auc is not None else scores(loss, None, targets=targets)


def labels(jobs: Sequence[JobAnswer]) -> list[str]:
    """Return a label for each job: its name; if several jobs share the name, also the id's end.

    >>> labels([JobAnswer(id="a-1", name="a"), JobAnswer(id="a-2", name="a")])
    ['a 1', 'a 2']
    """
    names = Counter(job.name for job in jobs)
    return [
        job.name if names[job.name] == 1 else f"{job.name} {id_end(job.id, job.name)}"
        for job in jobs
    ]


def last_part(place: str) -> str:
    """Return the last part of a path or URL, with its folder if the part begins with a wildcard.

    A last part `train` is left out.

    >>> last_part("s3://clicks/day_1/*.parquet"), last_part("/data/criteo/train"), last_part("")
    ('day_1/*.parquet', 'criteo', '')
    """
    parts = place.rstrip("/").split("/")
    if parts[-1] == "train" and len(parts) > 1:
        return parts[-2]  # the folder of `prep`, whose name differs between jobs
    return "/".join(parts[-2:] if parts[-1].startswith("*") else parts[-1:])


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(("html",)),
        auto_reload=False,  # after an upgrade in place, a running service has its old code
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        state=state,
        lasted_s=lasted_s,
        main_score=main_score,
        score=score,
        steps=steps,
        when=when,
        utc=utc,
        progress=progress,
        id_end=id_end,
        last_part=last_part,
        count=count,
        number=number,
        duration=duration,
        byte_size=byte_size,
    )
    return found


_TEMPLATES = _environment()


def page(
    request: Request, template: str, principal: Principal | None, status: int = 200, **values: Any
) -> HTMLResponse:
    """Return a rendered template.

    `principal` is the visitor, `None` without a session. `values` are the template's variables.
    """
    text = _TEMPLATES.get_template(template).render(
        principal=principal,
        here=request.url.path,
        version=__version__,
        **values,
    )
    # A message may quote half a surrogate pair, which UTF-8 lacks.
    return HTMLResponse(text.encode(errors="backslashreplace"), status, headers=_HEADERS)


def url_with(request: Request, changes: Mapping[str, object]) -> str:
    """Return the request's path and query with changed parameters; empty ones are removed."""
    values = dict(request.query_params) | dict(changes)
    query = urlencode({name: value for name, value in values.items() if value})
    return f"{request.url.path}?{query}" if query else request.url.path


class PageRoute(APIRoute):
    """A route whose errors are pages; callers without a session are redirected to `/login`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await answer(request)
            except Problem as problem:
                return _shown(request, problem)
            except RequestValidationError:
                return _shown(request, Problem("bad_request", "the address or form has a mistake"))
            except DistrainError as error:  # for example of the database
                return _shown(request, problem_of(error))

        return handler


def no_page(request: Request, error: Exception) -> Response:
    """Answer a request for an address that does not exist: browsers get a page."""
    problem = problem_of(error)
    is_api = request.url.path.startswith("/v1")
    if is_api or "text/html" not in request.headers.get("Accept", ""):
        return problem.response(request.url.path)
    with suppress(Problem, DistrainError):  # without a session, the page has no name of a user
        request.state.caller = caller_now(request, request.app.state.parts)
    if problem.status == 404:
        problem = Problem("not_found", "this service has no such page")
    return _shown(request, problem)


def _shown(request: Request, problem: Problem) -> Response:
    if problem.code == "unauthenticated":
        here = request.url.path
        if request.url.query:
            here += f"?{request.url.query}"
        return RedirectResponse(f"/login?next={quote(here, safe='')}", 303)
    shown = page(
        request,
        "problem.html",
        getattr(request.state, "caller", None),
        problem.status,
        title="Not found" if problem.status == 404 else CODES[problem.code][1],
        detail=problem.detail,
        hint=problem.hint,
    )
    shown.headers.update(problem.headers)
    return shown
