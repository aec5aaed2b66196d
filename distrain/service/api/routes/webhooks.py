"""`/v1/webhooks`: addresses that get a project's events."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from distrain.client.documents import Answer, Time
from distrain.errors import InputError
from distrain.service.access.policy import Mistake
from distrain.service.access.rules import Action, role_allows
from distrain.service.api.answers import LOCATION, answers
from distrain.service.api.dependencies import ApiCall, Call, Counted
from distrain.service.api.documents import ProjectName, Request, answer_of
from distrain.service.api.problems import Problem, not_found
from distrain.service.decide.api_values import utc
from distrain.service.store.auditing import Webhook
from distrain.service.values import Principal
from distrain.service.webhooks.posting import place_of, send, webhook_secret

router = APIRouter(tags=["webhooks"])

_AT_ONCE = 4
_reaching = threading.BoundedSemaphore(_AT_ONCE)
"""Names and receivers may take seconds: they must not take all threads of the API."""

Kind = Literal["job.state", "job.progress", "job.deleted"]


class WebhookRequest(Request):
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
    call: Call,
    project: Annotated[ProjectName | None, Query(description="Of this project alone.")] = None,
) -> WebhookList:
    """List the caller's webhooks, and those of the projects that they operate."""
    call.require(Action.SEE_WEBHOOKS)
    hooks = call.store.webhooks(project)
    return WebhookList(webhooks=[_document(hook) for hook in hooks if _is_seen(call.caller, hook)])


@router.post(
    "/v1/webhooks",
    status_code=201,
    dependencies=[Counted],
    responses=answers(
        "not_found", "quota", others={201: {"description": "The webhook.", "headers": LOCATION}}
    ),
)
def create_webhook(body: WebhookRequest, response: Response, call: Call) -> NewWebhookDocument:
    """Send a project's events to an address from now on. The secret is in this answer alone."""
    call.require(Action.SET_WEBHOOKS)
    store, service, user = call.store, call.service, call.caller.user
    if not role_allows(call.caller, Action.SEE_PROJECT, body.project):
        raise not_found(f"project {body.project!r}")
    call.allow(Action.SET_WEBHOOKS, body.project, user)
    if store.project(body.project) is None:
        raise not_found(f"project {body.project!r}")
    _count(call, body.project)
    with _threads_left():
        try:
            place_of(body.url, service.settings.webhooks.allow_private)
        except InputError as error:
            mistake = Mistake("/url", error.message)
            raise Problem("bad_request", error.message, error.hint, [mistake]) from error
    kinds = tuple(dict.fromkeys(body.kinds))
    hook_id = secrets.token_hex(8)
    at_s = service.now_s()
    hook = Webhook(hook_id, body.project, user, body.url, kinds, store.last_seq(), at_s)
    store.put_webhook(hook)
    # without the URL, which may be a secret itself
    call.note(hook_id, project=body.project, kinds=list(kinds))
    response.headers["Cache-Control"] = "no-store"
    response.headers["Location"] = f"/v1/webhooks/{hook_id}"
    secret = webhook_secret(service.key, hook_id)
    return NewWebhookDocument(**_document(hook).model_dump(), secret=secret)


@router.get("/v1/webhooks/{webhook_id}", responses=answers("not_found"))
def get_webhook(webhook_id: str, call: Call) -> WebhookDocument:
    """A webhook, and whether it fails."""
    call.require(Action.SEE_WEBHOOKS)
    return _document(_seen(call, webhook_id))


@router.delete(
    "/v1/webhooks/{webhook_id}",
    status_code=204,
    dependencies=[Counted],
    responses=answers("not_found"),
)
def delete_webhook(webhook_id: str, call: Call) -> None:
    """Delete a webhook; an event on its way may still arrive."""
    call.note(webhook_id)
    call.require(Action.SET_WEBHOOKS)
    hook = _seen(call, webhook_id)
    call.store.delete_webhook(hook.id)


@router.post(
    "/v1/webhooks/{webhook_id}/test", dependencies=[Counted], responses=answers("not_found")
)
def test_webhook(webhook_id: str, call: Call) -> WebhookTest:
    """Send an event of the kind `webhook.test` now, and show the receiver's answer."""
    call.note(webhook_id)
    call.require(Action.SET_WEBHOOKS)
    hook = _seen(call, webhook_id)
    told_id = f"test-{secrets.token_hex(8)}"
    document = {"id": told_id, "kind": "webhook.test", "webhook": hook.id, "data": {}}
    with _threads_left():
        posted = send(
            hook.url,
            webhook_secret(call.service.key, hook.id),
            told_id,
            json.dumps(document).encode(),
            allow_private=call.service.settings.webhooks.allow_private,
        )
    return WebhookTest(delivered=posted.error is None, status=posted.status, error=posted.error)


def _is_seen(caller: Principal, hook: Webhook) -> bool:
    return role_allows(caller, Action.SEE_WEBHOOKS, hook.project, hook.owner)


def _seen(call: ApiCall, webhook_id: str) -> Webhook:
    hook = call.store.webhook(webhook_id) if len(webhook_id) <= 32 else None
    if hook is None or not _is_seen(call.caller, hook):
        raise not_found(f"webhook {webhook_id!r}")
    return hook


def _count(call: ApiCall, project: str) -> None:
    most, user = call.service.settings.limits.webhooks, call.caller.user
    own = [hook for hook in call.store.webhooks(project) if hook.owner == user]
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
    return answer_of(
        WebhookDocument,
        hook,
        kinds=list(hook.kinds),
        state=state if hook.disabled_at_s is None else "disabled",
        failing_since=utc(hook.failing_since_s),
        next_try_at=utc(hook.next_at_s),
    )
