"""What is asked of jobs: submit, look, wait, change, stop."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from distrain.client.connection import Connection
from distrain.client.documents import Job, Validation
from distrain.client.errors import NotFound, RequestRefused, ServiceError, WaitTimedOut
from distrain.client.exchange import Call
from distrain.errors import InputError
from distrain.wording import some

_WAIT_S = 30.0
_LEAST_S = 1.0
_AWAY_S = 5.0
_MOST_LOOKED_AT = 2000
_MOST_NAMED = 5


def job_path(job_id: str, *more: str) -> str:
    """The path of a job; raises InputError: no job can have that id."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", job_id):
        raise InputError(f"{job_id!r} is no job's id", hint="`distrain jobs` lists them.")
    return "/".join(["/v1/jobs", job_id, *(quote(one, safe="") for one in more)])


def new_key() -> str:
    """A new idempotency key."""
    return uuid4().hex


def submission(
    spec: Mapping[str, Any],
    project: str | None = None,
    cluster: str | None = None,
    priority: int | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The body of a submission: what is not said is left out, and the service decides.

    >>> submission({"name": "a"}, priority=3)
    {'spec': {'name': 'a'}, 'priority': 3}
    """
    more = {"project": project, "cluster": cluster, "priority": priority, "tags": tags or None}
    return {"spec": dict(spec)} | {name: v for name, v in more.items() if v is not None}


Filters = dict[str, str | list[str]]


def job_filters(
    project: str | None,
    owner: str | None,
    states: Sequence[str],
    cluster: str | None,
    tags: Mapping[str, str],
    created_after: str | None,
    text: str | None,
) -> Filters:
    """The parameters of a list of jobs; what is not said does not narrow it."""
    named = {"project": project, "owner": owner, "cluster": cluster, "text": text}
    named |= {"created_after": created_after}
    found: Filters = {name: value for name, value in named.items() if value}
    found |= {"state": list(states)} if states else {}
    return found | ({"tag": [f"{name}={value}" for name, value in tags.items()]} if tags else {})


def header_value(name: str, value: str) -> dict[str, str]:
    """A header with a value of the caller's; raises InputError: it is no value for a header."""
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", value):
        raise InputError(f"{value!r} cannot be sent as {name}", hint="Use ASCII without spaces.")
    return {name: value}


def submit(connection: Connection, body: Mapping[str, Any], key: str) -> Job:
    """Submit a job under a key."""
    headers = header_value("Idempotency-Key", key)
    call = Call("POST", "/v1/jobs", headers=headers, body=body)
    return _made(connection, call)


def remade(
    connection: Connection, job_id: str, how: str, overrides: Mapping[str, Any], key: str
) -> Job:
    """Resume or clone a job under a key."""
    headers = header_value("Idempotency-Key", key)
    call = Call("POST", job_path(job_id, how), headers=headers, body={"set": dict(overrides)})
    return _made(connection, call)


def _made(connection: Connection, call: Call) -> Job:
    answer = connection.ask(call)
    job = Job.from_json(connection.good(answer, call))
    return replace(job, replayed=answer.status == 200)


def validate(connection: Connection, body: Mapping[str, Any], *, data: bool = False) -> Validation:
    """What the service says of a submission; nothing is submitted.

    Args:
        data: Have a worker look at the data as well, and wait for what it finds.
    """
    params = {"data": "true"} if data else {}
    call = Call("POST", "/v1/jobs:validate", params=params, body=body)
    answer = connection.ask(call)
    document = answer.document()
    if answer.status == 422 and isinstance(document, dict):
        return Validation.from_json(document)
    document = connection.good(answer, call)
    if answer.status != 202:
        return Validation.from_json(document)
    return _checked(connection, str(document.get("url") or ""))


def _checked(connection: Connection, url: str) -> Validation:
    """What a worker has found in the data, once it has looked."""
    if not re.fullmatch(r"/v1/preflights/[A-Za-z0-9._~=-]{1,2000}", url):
        raise ServiceError(
            "the service names no check of the data that it has begun",
            where={"server": connection.address},
            hint="Validate without `data`.",
        )
    tries = 0
    while True:
        found = connection.document(Call("GET", url))
        if found.get("state") not in ("waiting", "running"):
            checked = Validation.from_json(found)
            passed = found.get("state") == "passed"
            return checked if passed else replace(checked, errors=_mistakes(found, checked))
        tries += 1
        connection.pause(min(_LEAST_S, 0.05 * 2.0 ** min(tries, 10)))


def _mistakes(found: Mapping[str, Any], checked: Validation) -> tuple[Mapping[str, Any], ...]:
    """Why a check did not pass, each with `pointer` and `detail`; never nothing."""
    why = found.get("error") or f"the check of the data ended as {found.get('state')!r}"
    told = checked.errors or ({"message": why},)
    return tuple({"pointer": "/spec", "detail": one.get("message", why), **one} for one in told)


def job(connection: Connection, job_id: str) -> Job:
    """A job as it stands."""
    return Job.from_json(connection.document(Call("GET", job_path(job_id))))


def _page(connection: Connection, params: Mapping[str, str | list[str]]) -> tuple[list[Job], str]:
    """Jobs, and the cursor of what follows them; "" at the end."""
    page = connection.document(Call("GET", "/v1/jobs", params=params))
    listed, cursor = page.get("jobs"), page.get("next_cursor")
    found = [Job.from_json(one) for one in listed] if isinstance(listed, list) else []
    return found, cursor if isinstance(cursor, str) and cursor != params.get("cursor") else ""


def jobs(connection: Connection, filters: Filters, page_jobs: int = 100) -> Iterator[Job]:
    """Jobs, the newest first, page after page."""
    params: Filters = {**filters, "limit": str(page_jobs)}
    while True:
        found, cursor = _page(connection, params)
        yield from found
        if not cursor:
            return
        params["cursor"] = cursor


def find(connection: Connection, word: str) -> Job:
    """The job whose id is a word, or the only one that begins with it.

    Raises:
        NotFound: There is none.
        InputError: There are several.
    """
    call = Call("GET", job_path(word))
    answer = connection.ask(call)
    if answer.status != 404:
        return Job.from_json(connection.good(answer, call))
    begun: list[Job] = []
    params: Filters = {"text": word, "limit": "200"}
    for _ in range(_MOST_LOOKED_AT // 200):
        found, cursor = _page(connection, params)
        begun += [one for one in found if one.id.startswith(word)]
        if not cursor:
            break
        params["cursor"] = cursor
    if not begun:
        raise _unknown(connection, word)
    if len(begun) > 1:
        raise _ambiguous(word, [one.id for one in begun])
    return job(connection, begun[0].id)  # a list holds summaries


def _unknown(connection: Connection, word: str) -> NotFound:
    return NotFound(
        f"there is no job '{word}' that you may see",
        where={"server": connection.address},
        hint="`distrain jobs` lists them.",
        code="not_found",
        status=404,
    )


def _ambiguous(word: str, ids: list[str]) -> InputError:
    return InputError(
        f"'{word}' is the beginning of several jobs' ids",
        where={"jobs": some(ids, _MOST_NAMED)},
        hint="Type more of the id.",
    )


def wait(
    connection: Connection,
    job_id: str,
    timeout_s: float | None,
    on_change: Callable[[Job], object] | None,
) -> Job:
    """Wait for a job's end; raises WaitTimedOut: it has not come within `timeout_s`."""
    began_s = time.monotonic()
    asked_s = began_s
    seen: Job | None = None
    while True:
        left_s = math.inf if timeout_s is None else began_s + timeout_s - asked_s
        hold_s = max(0.0, min(_WAIT_S, left_s, connection.held_s))
        params = {"timeout_s": f"{hold_s:.3f}"}
        call = Call(
            "GET", job_path(job_id, "wait"), params=params, read_s=hold_s + 30, held_s=hold_s
        )
        # A service that is away is not waited for much longer than the job.
        patience = connection.at_most(left_s + _AWAY_S)
        found = Job.from_json(patience.document(call))
        if found != seen and on_change is not None:
            on_change(found)
        seen = found
        if found.is_final:
            return found
        now_s = time.monotonic()
        if timeout_s is not None and now_s - began_s >= timeout_s:
            with connection.without_token():
                raise _timed_out(connection, found, timeout_s)
        # One that holds no requests must not be asked without a pause.
        if now_s - asked_s < _LEAST_S < left_s:
            connection.pause(_LEAST_S)
        asked_s = time.monotonic()


def _timed_out(connection: Connection, found: Job, timeout_s: float) -> WaitTimedOut:
    return WaitTimedOut(
        f"job {found.id} has not ended within {timeout_s:g} s",
        where={"server": connection.address, "state": found.state},
        hint=f"It goes on; wait longer: distrain wait {found.id}",
    )


def spec(connection: Connection, job_id: str) -> Mapping[str, Any]:
    """A job's spec, as resolved."""
    found = connection.document(Call("GET", job_path(job_id, "spec"))).get("spec")
    return found if isinstance(found, dict) else {}


def cancel(
    connection: Connection, job_id: str, grace_s: float | None, force: bool, why: str
) -> Job:
    """Ask for a job's end; one that has ended stays as it is."""
    body = {"grace_s": grace_s, "force": force or None, "why": why or None}
    call = Call(
        "POST",
        job_path(job_id, "cancel"),
        body={name: value for name, value in body.items() if value is not None},
    )
    return Job.from_json(connection.document(call))


def change(
    connection: Connection, job_id: str, priority: int | None, tags: Mapping[str, str | None] | None
) -> Job:
    """Change a job's priority and single tags, whatever others change at the same time."""
    for _ in range(10):
        found = job(connection, job_id)
        wanted = _changes(found, priority, tags)
        if not wanted:
            return found
        headers = {"If-Match": f'"{found.rev}"'}
        call = Call("PATCH", job_path(job_id), headers=headers, body=wanted)
        answer = connection.ask(call)
        if answer.status != 412:
            return Job.from_json(connection.good(answer, call))
        connection.pause(connection.retries.pause_s(1))
    raise RequestRefused(
        f"job {job_id} changes all the time: somebody else was faster, ten times in a row",
        where={"server": connection.address},
        hint="Try again.",
        code="revision_differs",
        status=412,
    )


def _changes(
    found: Job, priority: int | None, tags: Mapping[str, str | None] | None
) -> dict[str, Any]:
    """What the job has to be told; empty if it is so already."""
    wanted: dict[str, Any] = {}
    if priority is not None and priority != found.priority:
        wanted["priority"] = priority
    if tags is not None:
        merged = {**found.tags, **tags}
        new = {name: value for name, value in merged.items() if value is not None}
        if new != found.tags:
            wanted["tags"] = new
    return wanted


def delete(connection: Connection, job_id: str) -> None:
    """Delete a job that has ended."""
    job(connection, job_id)
    call = Call("DELETE", job_path(job_id))
    answer = connection.ask(call)
    if answer.status != 404:  # it was there: an earlier try, or somebody else, has deleted it
        connection.check(answer, call)
