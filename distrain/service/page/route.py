"""The routes of pages: they show the API's problems as pages."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute

from distrain.service.api import CODES, Problem
from distrain.service.page.rendering import page


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
    root = request.scope.get("root_path", "")
    if problem.code == "unauthenticated":
        here = request.url.path.removeprefix(root)
        if request.url.query:
            here += f"?{request.url.query}"
        return RedirectResponse(f"{root}/login?next={quote(here, safe='')}", 303)
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
