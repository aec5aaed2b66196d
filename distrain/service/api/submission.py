"""From a request for a job to a `NewJob`: project, cluster, priority, and a good spec."""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Annotated, Any

from fastapi import Header, Request
from pydantic import BaseModel

from distrain.jobs import JobState
from distrain.service.access import (
    Action,
    Judged,
    Mistake,
    judge,
    max_priority,
    pointer,
    role_allows,
    tag_mistakes,
    with_settings,
)
from distrain.service.api.dependencies import Parts, allow, require
from distrain.service.api.problems import Problem, not_found
from distrain.service.settings import Settings
from distrain.service.values import Job, Key, NewJob, Principal, Quota
from distrain.spec import JobSpec, different_fields

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="1 to 128 characters of ASCII without blanks, made anew for each thing that is "
        "wanted, and sent again with each retry. Required; kept for 7 days.",
    ),
]


def make_key(request: Request, caller: Principal, key: str | None, body: BaseModel) -> Key:
    """The caller's key for this request; `no_key` or `bad_request` for one that cannot be kept."""
    if not key:
        raise Problem(
            "no_key",
            "the request has no Idempotency-Key",
            hint="Send a random one, and the same with each retry, so that none makes two jobs.",
        )
    if not re.fullmatch(r"[\x21-\x7e]{1,128}", key):
        mistake = Mistake("#Idempotency-Key", "1 to 128 characters of ASCII without blanks")
        raise Problem("bad_request", "the key cannot be used", errors=[mistake])
    asked = [request.url.path, body.model_dump(mode="json", exclude_unset=True)]
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return Key(caller.user, key, hashlib.sha256(text.encode()).hexdigest())


def made_before(service: Parts, caller: Principal, key: Key) -> Job | None:
    """The job of an earlier request with this key; `None` also if its caller may not see it now."""
    job = service.store.find_key(key)
    if job is None or not role_allows(caller, Action.SEE_JOB, job.project, job.owner):
        return None
    return job


@dataclass(frozen=True)
class Wanted:
    """A job that a call asks for."""

    project: str
    cluster: str | None
    document: Mapping[str, Any]
    priority: int | None  # `None` takes the spec's
    tags: Mapping[str, str]
    where: str  # the JSON pointer of the spec in the body


@dataclass(frozen=True)
class Checked:
    """A submission with its cluster, spec and priority."""

    cluster: str
    spec: JobSpec
    priority: int
    tags: Mapping[str, str]
    is_counted: bool  # whether the project's quota counts the jobs in the queue


def check(service: Parts, caller: Principal, wanted: Wanted) -> Checked:
    """Check a submission (`not_found`, `forbidden`, `bad_spec`)."""
    quota = quota_for(service, caller, Action.SUBMIT, wanted.project)
    cluster = choose_cluster(service.settings, wanted.project, wanted.cluster)
    judged = judge_for(service.settings, cluster, wanted.project, wanted.document)
    mistakes = [Mistake(wanted.where + m.pointer, m.detail) for m in judged.mistakes]
    tags = {**(judged.spec.tags if judged.spec else {}), **wanted.tags}
    mistakes += tag_mistakes(tags if judged.spec else wanted.tags, service.settings.limits, "/tags")
    if judged.spec is None or mistakes:
        raise bad_spec(mistakes)
    priority = judged.spec.queue.priority if wanted.priority is None else wanted.priority
    check_priority(service.settings, caller, wanted.project, cluster, quota, priority)
    return Checked(cluster, judged.spec, priority, tags, quota.counts_queued)


def new_job(
    settings: Settings,
    caller: Principal,
    project: str,
    checked: Checked,
    now_s: float,
    parent: str | None = None,
) -> NewJob:
    cluster, spec = checked.cluster, checked.spec
    moment = datetime.fromtimestamp(now_s, UTC)
    job_id = f"{spec.name}-{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(5)}"
    return NewJob(
        id=job_id,
        project=project,
        owner=caller.user,
        name=spec.name,
        cluster=cluster,
        priority=checked.priority,
        num_ranks=spec.resources.num_ranks,
        run_dir=f"{settings.run_place(cluster)}/{project}/{job_id}",
        spec=spec.model_dump(mode="json"),
        tags=checked.tags,
        parent=parent,
    )


def again(service: Parts, job: Job, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A job's spec with changed settings; `bad_spec` where a path leads nowhere."""
    try:
        return with_settings(service.store.spec(job.id), settings)
    except KeyError as error:
        mistake = Mistake(pointer("set", error.args[0]), "the path leads through no section")
        raise bad_spec([mistake]) from None


def check_resumable(job: Job, before: Mapping[str, Any], after: JobSpec) -> None:
    """Refuse a job that has succeeded, unless its new spec trains longer (`final`, `bad_spec`)."""
    if job.state != JobState.SUCCEEDED:
        return
    if _trains_on(before.get("train") or {}, after):
        if problems := different_fields(before, after):
            raise bad_spec([Mistake("/set", problem) for problem in problems])
        return
    raise Problem(
        "final",
        f"job {job.id} has succeeded: there is nothing to go on with",
        hint="To train longer, set train.epochs or train.max_steps higher, or change "
        "train.early_stopping; a clone trains anew.",
    )


def _trains_on(before: Mapping[str, Any], after: JobSpec) -> bool:
    now, most = after.train.model_dump(mode="json"), before.get("max_steps")
    more_epochs = now["epochs"] - before.get("epochs", 1)
    more_steps = 0 if most is None else (now["max_steps"] or inf) - most
    other_end = now["early_stopping"] != before.get("early_stopping")
    return bool(min(more_epochs, more_steps) >= 0 and max(more_epochs, more_steps, other_end) > 0)


def judge_for(
    settings: Settings, cluster: str, project: str, document: Mapping[str, Any]
) -> Judged:
    """Judge a spec by the limits and the profile of a cluster."""
    profile, root = settings.clusters[cluster], settings.run_place(cluster)
    closed = (str(settings.data_dir),)  # keys, tokens and the database: workers may read them
    return judge(document, settings.limits, profile, run_root=root, project=project, closed=closed)


def bad_spec(mistakes: Sequence[Mistake]) -> Problem:
    count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    detail = f"the spec has {count}: " + "; ".join(m.detail for m in mistakes[:3])
    return Problem(
        "bad_spec",
        detail,
        hint="POST /v1/jobs:validate checks without submitting.",
        errors=mistakes,
    )


def quota_for(service: Parts, caller: Principal, action: Action, project: str) -> Quota:
    """The quota of a project in which the caller may do something (`not_found`, `forbidden`)."""
    require(caller, action)
    quota = caller.quotas.get(project)
    if quota is None and (caller.is_admin or project in caller.roles):
        known = service.store.project(project)
        quota = known.quota if known is not None else None
    if quota is None:
        yours = ", ".join(sorted(caller.roles))
        hint = f"Name one of your projects: {yours}." if yours else None
        raise not_found(f"project {project!r}", hint)
    allow(caller, action, project, caller.user)
    return quota


def usable_clusters(settings: Settings, project: str) -> list[str]:
    """The clusters that a project may use, by name."""
    found = settings.clusters.items()
    return sorted(name for name, p in found if not p.projects or project in p.projects)


def choose_cluster(settings: Settings, project: str, asked: str | None) -> str:
    """The named cluster, or the project's only one; otherwise `bad_spec`."""
    usable = usable_clusters(settings, project)
    if asked in usable:
        return asked
    names = ", ".join(usable) or "none"
    if asked is None and len(usable) == 1:
        return usable[0]
    detail = (
        f"the project may use several clusters: {names}"
        if asked is None
        else f"the project may use no cluster {asked!r}; it may use: {names}"
    )
    raise Problem(
        "bad_spec", detail, hint="Name one as `cluster`.", errors=[Mistake("/cluster", detail)]
    )


def check_priority(
    settings: Settings, caller: Principal, project: str, cluster: str, quota: Quota, priority: int
) -> None:
    """Refuse priorities beyond what the caller's role allows (`forbidden`)."""
    of_cluster = settings.clusters[cluster].max_priority if cluster in settings.clusters else 0
    most = max_priority(caller, project, quota.max_priority, of_cluster)
    if priority > most:
        raise Problem(
            "forbidden",
            f"priority {priority} is more than {most}, the highest that you may ask for in "
            f"project {project} on cluster {cluster}",
            hint="Ask for less, or ask an operator of the project.",
            errors=[Mistake("/priority", f"at most {most}")],
        )
