"""`/v1/webhooks`: addresses that get a project's events."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from distrain.errors import InputError
from distrain.service.access import Action, Mistake, role_allows
from distrain.service.api.answers import LOCATION, answers
from distrain.service.api.dependencies import (
    Caller,
    Counted,
    Parts,
    Service,
    allow,
    audit_note,
    require,
)
from distrain.service.api.documents import Answer, ProjectName, Request as Body, Time
from distrain.service.api.problems import Problem, not_found
from distrain.service.decide import utc
from distrain.service.store import Webhook
from distrain.service.values import Principal
from distrain.service.webhooks import place_of, send, webhook_secret

router = APIRouter(tags=["webhooks"])

_AT_ONCE = 4
_reaching = threading.BoundedSemaphore(_AT_ONCE)
"""Names and receivers may take seconds: they must not take all threads of the API."""

Kind = Literal["job.state", "job.progress", "job.deleted"]


class WebhookRequest(Body):
    """A webhook to make."""

    project: ProjectName = "default"
    url: str = Field(min_length=1, max_length=2048, description="`https://` or `http://`.")
    kinds: list[Kind] = Field(
        ["job.state", "job.deleted"], min_length=1, max_length=3, description="Of the events."
    )


class WebhookDocument(Answer):
    """An address that gets the events of the jobs that its owner may see."""

    id: str
    project: str
    owner: str
    url: str
    kinds: list[str]
    state: Literal["active", "failing", "disabled"]
    error: str | None = Field(description="What failed last, or why it was given up.")
    failures: int = Field(description="In a row.")
    failing_since: Time | None
    next_try_at: Time | None
    disabled_at: Time | None
    created_at: Time


class NewWebhookDocument(WebhookDocument):
    """A new webhook, with its secret."""

    secret: str = Field(description="Of its signatures; it is shown this once.")


class WebhookList(Answer):
    """Webhooks, oldest first."""

    webhooks: list[WebhookDocument]


class WebhookTest(Answer):
    """The outcome of a test."""

    delivered: bool
    status: int | None = Field(description="What the receiver answered.")
    error: str | None


@router.get("/v1/webhooks", responses=answers())
def list_webhooks(
    caller: Caller,
    service: Service,
    project: Annotated[ProjectName | None, Query(description="Of this project alone.")] = None,
) -> WebhookList:
    """List the caller's webhooks, and those of the projects that they operate."""
    require(caller, Action.SEE_WEBHOOKS)
    found = service.store.webhooks(project)
    return WebhookList(webhooks=[_document(hook) for hook in found if _is_seen(caller, hook)])


@router.post(
    "/v1/webhooks",
    status_code=201,
    dependencies=[Counted],
    responses=answers(
        "not_found", "quota", others={201: {"description": "The webhook.", "headers": LOCATION}}
    ),
)
def create_webhook(
    body: WebhookRequest, request: Request, response: Response, caller: Caller, service: Service
) -> NewWebhookDocument:
    """Send a project's events to an address from now on. The secret is in this answer alone."""
    require(caller, Action.SET_WEBHOOKS)
    if not role_allows(caller, Action.SEE_PROJECT, body.project):
        raise not_found(f"project {body.project!r}")
    allow(caller, Action.SET_WEBHOOKS, body.project, caller.user)
    store = service.store
    if body.project not in {project.name for project in store.projects()}:
        raise not_found(f"project {body.project!r}")
    _count(service, caller, body.project)
    with _threads_left():
        try:
            place_of(body.url, service.settings.webhooks.allow_private)
        except InputError as error:
            mistake = Mistake("/url", error.message)
            raise Problem("bad_request", error.message, error.hint, [mistake]) from error
    kinds = tuple(dict.fromkeys(body.kinds))
    hook_id = secrets.token_hex(8)
    at_s = service.now_s()
    hook = Webhook(hook_id, body.project, caller.user, body.url, kinds, store.last_seq(), at_s)
    store.put_webhook(hook)
    note = audit_note(request)  # without the URL, which may be a secret itself
    note.target, note.details = hook_id, {"project": body.project, "kinds": list(kinds)}
    response.headers["Cache-Control"] = "no-store"
    response.headers["Location"] = f"/v1/webhooks/{hook_id}"
    secret = webhook_secret(service.key, hook_id)
    return NewWebhookDocument(**_document(hook).model_dump(), secret=secret)


@router.get("/v1/webhooks/{webhook_id}", responses=answers("not_found"))
def get_webhook(webhook_id: str, caller: Caller, service: Service) -> WebhookDocument:
    """A webhook, and whether it fails."""
    require(caller, Action.SEE_WEBHOOKS)
    return _document(_seen(service, caller, webhook_id))


@router.delete(
    "/v1/webhooks/{webhook_id}",
    status_code=204,
    dependencies=[Counted],
    responses=answers("not_found"),
)
def delete_webhook(webhook_id: str, request: Request, caller: Caller, service: Service) -> None:
    """Delete a webhook; an event on its way may still arrive."""
    audit_note(request).target = webhook_id
    require(caller, Action.SET_WEBHOOKS)
    hook = _seen(service, caller, webhook_id)
    service.store.delete_webhook(hook.id)


@router.post(
    "/v1/webhooks/{webhook_id}/test",
    dependencies=[Counted],
    responses=answers("not_found"),
)
def test_webhook(
    webhook_id: str, request: Request, caller: Caller, service: Service
) -> WebhookTest:
    """Send an event of the kind `webhook.test` now, and show the receiver's answer."""
    audit_note(request).target = webhook_id
    require(caller, Action.SET_WEBHOOKS)
    hook = _seen(service, caller, webhook_id)
    told_id = f"test-{secrets.token_hex(8)}"
    document = {"id": told_id, "kind": "webhook.test", "webhook": hook.id, "data": {}}
    with _threads_left():
        posted = send(
            hook.url,
            webhook_secret(service.key, hook.id),
            told_id,
            json.dumps(document).encode(),
            allow_private=service.settings.webhooks.allow_private,
        )
    return WebhookTest(delivered=posted.error is None, status=posted.status, error=posted.error)


def _is_seen(caller: Principal, hook: Webhook) -> bool:
    return role_allows(caller, Action.SEE_WEBHOOKS, hook.project, hook.owner)


def _seen(service: Parts, caller: Principal, webhook_id: str) -> Webhook:
    hook = service.store.webhook(webhook_id) if len(webhook_id) <= 32 else None
    if hook is None or not _is_seen(caller, hook):
        raise not_found(f"webhook {webhook_id!r}")
    return hook


def _count(service: Parts, caller: Principal, project: str) -> None:
    most = service.settings.limits.webhooks
    own = [hook for hook in service.store.webhooks(project) if hook.owner == caller.user]
    if len(own) >= most:
        raise Problem(
            "quota",
            f"you have {most} webhooks in project {project} already",
            hint="Delete one; a webhook takes several kinds of events.",
        )


@contextmanager
def _threads_left() -> Iterator[None]:
    if not _reaching.acquire(timeout=1.0):
        raise Problem("rate", "other webhooks are being looked up or tested", retry_after_s=5)
    try:
        yield
    finally:
        _reaching.release()


def _document(hook: Webhook) -> WebhookDocument:
    state = "failing" if hook.failures else "active"
    return WebhookDocument.of(
        hook,
        kinds=list(hook.kinds),
        state=state if hook.disabled_at_s is None else "disabled",
        failing_since=utc(hook.failing_since_s),
        next_try_at=utc(hook.next_at_s),
    )
