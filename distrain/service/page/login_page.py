"""`/login` and `/logout`: begin a browser session with a token, and end it."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from distrain.service.access.sessions import (
    COOKIE,
    SESSION_S,
    is_token,
    new_session,
    token_sha256,
)
from distrain.service.api.dependencies import Service, is_from_here
from distrain.service.page.rendering import page

router = APIRouter(include_in_schema=False)

_HOME = "/jobs"


@router.get("/login")
def login_form(request: Request, next: str = _HOME) -> HTMLResponse:
    return page(request, "login.html", None, next=_own_path(next), problem="")


@router.post("/login")
def login(
    request: Request,
    service: Service,
    token: Annotated[str, Form()],
    next: Annotated[str, Form()] = _HOME,
) -> Response:
    def refuse(problem: str, status: int) -> HTMLResponse:
        return page(request, "login.html", None, status, next=_own_path(next), problem=problem)

    if not is_from_here(request):
        return refuse("This form was sent by a page of another site.", 403)
    text = token.strip()
    found = None
    if is_token(text):
        found = service.store.token_and_user(token_sha256(text))
    now_s = service.now_s()
    if found is None or not found[0].is_good(now_s):
        return refuse("This token is mistyped, revoked or expired.", 401)
    answer = RedirectResponse(_own_path(next), 303)
    public = service.settings.listen.public_url or ""
    session = new_session(service.store, found[0].id, now_s)
    answer.set_cookie(
        COOKIE,
        session,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https" or public.startswith("https:"),
    )
    return answer


@router.post("/logout")
def logout(request: Request, service: Service) -> Response:
    answer = RedirectResponse("/login", 303)
    if is_from_here(request):
        service.store.end_sessions(token_sha256(request.cookies.get(COOKIE, "")))
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _own_path(path: str) -> str:
    r"""Return `path` if it is a path of this server, otherwise the path of the list of jobs.

    >>> _own_path("/jobs/a?x=1"), _own_path("//elsewhere"), _own_path("/\\elsewhere")
    ('/jobs/a?x=1', '/jobs', '/jobs')
    """
    plain = path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
    return path if plain and not urlsplit(path).netloc else _HOME
