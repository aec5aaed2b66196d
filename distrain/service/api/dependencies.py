"""Dependencies that routes declare by annotation: the caller, the store, the settings, the time.

Routes with a plain `def` run in threads, where the store may be called; `async` routes must call it
with `starlette.concurrency.run_in_threadpool`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.concurrency import run_in_threadpool

from distrain.service.access.rules import Action, has_scope, role_allows
from distrain.service.access.sessions import COOKIE, is_token, token_sha256
from distrain.service.api.problems import Problem, not_found
from distrain.service.settings import Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store
from distrain.service.values import Job, Principal, Scope

_NOTED_EVERY_S = 60.0
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class ApiParts:
    """The shared objects of one API process; `request.app.state.parts`."""

    store: Store
    settings: Settings
    closed: tuple[str, ...]  # the `closed_places` of the settings; workers may be able to read them
    now_s: Callable[[], float] = time.time  # Unix time
    # by token id: the Unix time when its use was last written to the store
    token_used_s: dict[str, float] = field(default_factory=dict)


async def _parts(request: Request) -> ApiParts:  # async: needs no thread
    found: ApiParts = request.app.state.parts
    return found


Service = Annotated[ApiParts, Depends(_parts)]

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token, as `distrain serve token create` creates it.",
)
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description="A browser's session; changing requests also need its `Origin`: this service.",
)


async def principal(
    request: Request,
    _token: Annotated[object, Depends(_bearer)],
    _session: Annotated[object, Depends(_cookie)],
) -> Principal:
    """Return the caller, by token, session or a proxy's header.

    Raises the `Problem` `unauthenticated`, or `forbidden`: a browser may have sent the request for
    another site's page.
    """
    parts: ApiParts = request.app.state.parts
    caller = await run_in_threadpool(_who, request, parts)
    if caller:
        request.state.user = caller.user  # for the log of requests
        request.state.token_id = caller.token_id or ""
        request.state.caller = caller  # for pages about errors
    if caller and request.method in _CHANGING and _bearer_text(request) is None:
        _check_origin(request)
    if caller is None:
        raise Problem(
            "unauthenticated",
            "the request has no valid token",
            hint="Send `Authorization: Bearer TOKEN`; `distrain login` stores a token, and an "
            "operator creates one with `distrain serve token create`.",
        )
    return caller


Caller = Annotated[Principal, Depends(principal)]


@dataclass(frozen=True)
class ApiCall:
    """A request, its caller, and the shared objects of this API process."""

    request: Request
    caller: Principal
    service: ApiParts

    @property
    def store(self) -> Store:
        return self.service.store

    def require(self, action: Action) -> None:
        """Raise the problem `forbidden` if the caller's token lacks the scope of an action.

        This queries no database, and does not check the caller's role.
        """
        if not has_scope(self.caller, action):
            raise Problem(
                "forbidden",
                f"the token may not be used for {action}",
                hint="Use a token with the required scope.",
            )

    def allow(self, action: Action, project: str | None = None, owner: str | None = None) -> None:
        """Raise the problem `forbidden` if the caller's token or role does not allow the action.

        Call it only for objects that the caller may see; for others, raise the problem `not_found`.
        `project` and `owner` are those of the affected job or object.
        """
        self.require(action)
        if not role_allows(self.caller, action, project, owner):
            where = f" in project {project}" if project else ""
            raise Problem("forbidden", f"your role{where} does not allow {action}")

    def job(self, job_id: str) -> Job:
        """Return a job.

        Raises the problem `not_found` if it does not exist, or the caller may not see it.
        """
        job = self.store.job(job_id) if len(job_id) <= 160 else None
        if job is None or not role_allows(self.caller, Action.SEE_JOB, job.project, job.owner):
            raise not_found(f"job {job_id!r}")
        return job

    def sees(self, job_id: str) -> bool:
        """Return True if a job exists, and the caller may see it."""
        try:
            self.job(job_id)
        except Problem:
            return False
        return True


async def _call(request: Request, caller: Caller) -> ApiCall:
    return ApiCall(request, caller, request.app.state.parts)


Call = Annotated[ApiCall, Depends(_call)]


PathId = Annotated[str, Path(description="The job's id.")]


def visible_job(job_id: PathId, call: Call) -> Job:
    call.require(Action.SEE_JOB)
    return call.job(job_id)


VisibleJob = Annotated[Job, Depends(visible_job)]  # the job in the path, for routes that show it


def caller_now(request: Request, parts: ApiParts) -> Principal:
    """Look up the caller of a request now; call it in a thread, since it may block.

    Raises the problem `unauthenticated` if the token or session is no longer valid.
    """
    caller = _who(request, parts)
    if caller is None:
        raise Problem("unauthenticated", "the request's token is no longer valid")
    return caller


def refresh_caller(call: ApiCall, job_id: str | None) -> ApiCall:
    """Return an open stream's call with the rights that its caller has now.

    Call it in a thread, since it may block. `job_id` is `None` for streams of all jobs. Raises the
    problem `unauthenticated`, `forbidden` or `not_found` if the caller may no longer read the
    stream.
    """
    now = replace(call, caller=caller_now(call.request, call.service))
    now.require(Action.SEE_JOB)
    if job_id is not None:
        now.job(job_id)
    return now


def _bearer_text(request: Request) -> str | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def _who(request: Request, parts: ApiParts) -> Principal | None:
    text = _bearer_text(request)
    if text is not None:
        found = parts.store.token_and_user(token_sha256(text)) if is_token(text) else None
        return _of_token(parts, found)
    cookie = request.cookies.get(COOKIE)
    if cookie:
        return _of_token(parts, parts.store.session_and_user(token_sha256(cookie), parts.now_s()))
    return _of_proxy(request, parts)


def _check_origin(request: Request) -> None:
    """Raise the problem `forbidden` if a browser may have sent a change for another site's page.

    A session's cookie is of a browser, and all browsers send the header `Origin` with a change.
    Other programs, for which a proxy signs on, need not send it.
    """
    is_missing = COOKIE in request.cookies and "origin" not in request.headers
    if is_missing or not is_from_here(request):
        raise Problem(
            "forbidden",
            "the page of another site may have sent the request",
            hint="Send a token instead of the cookie, or use the page's own forms. A proxy must "
            "forward the browser's Host.",
        )


def is_from_here(request: Request) -> bool:
    """Return True if the header `Origin` is missing or names this server."""
    # "null" for a sandboxed page, which is not a page of this service
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _of_token(parts: ApiParts, found: tuple[Token, Principal] | None) -> Principal | None:
    now_s = parts.now_s()
    if found is None or not found[0].is_good(now_s):
        return None
    token, caller = found
    if now_s - parts.token_used_s.get(token.id, 0.0) >= _NOTED_EVERY_S:
        parts.token_used_s[token.id] = now_s
        parts.store.note_token_used(token.id)
    return replace(caller, is_admin=caller.user in parts.settings.admins)


def _of_proxy(request: Request, parts: ApiParts) -> Principal | None:
    sign_on = parts.settings.sign_on
    if sign_on is None or not _is_over_socket(request):
        return None
    user = request.headers.get(sign_on.user_header, "").strip()
    if not 0 < len(user) <= 128 or not user.isprintable():
        return None
    is_admin = user in parts.settings.admins
    return Principal(user, is_admin, parts.store.roles(user), frozenset(Scope), None)


def _is_over_socket(request: Request) -> bool:
    server = request.scope.get("server") or ("", None)
    return request.client is None and server[1] is None
