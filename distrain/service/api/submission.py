"""Checks requests for jobs, and makes the `Job` to submit and its spec with all defaults."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from pydantic import BaseModel

from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import set_at
from distrain.jobs.spec.resuming import different_fields
from distrain.jobs.states import JobState
from distrain.service.access.policy import (
    Mistake,
    judge,
    pointer,
    tag_mistakes,
)
from distrain.service.access.rules import Action, max_priority
from distrain.service.api.bodies import JobRequest
from distrain.service.api.dependencies import ApiCall
from distrain.service.api.problems import Problem, not_found
from distrain.service.settings import Settings
from distrain.service.values import Job, Quota


def request_sha256(call: ApiCall, body: BaseModel) -> str:
    """Return a hash of a request's path and body; equal hashes identify a repeated request."""
    asked = [call.request.url.path, body.model_dump(mode="json", exclude_unset=True)]
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def checked(
    call: ApiCall,
    job_id: str,
    request: JobRequest,
    where: str = "/spec",
    parent: str | None = None,
) -> tuple[Job, JobSpec]:
    """Validate a request, and return the job to submit and its spec with all defaults.

    `where` is the JSON pointer of the spec in the request's body; `parent` is the id of the job
    that is cloned. Raises the problem `not_found` (the project), `forbidden` or `bad_spec`.
    """
    settings = call.service.settings
    quota = quota_for(call, Action.SUBMIT, request.project)
    cluster = choose_cluster(settings, request.project, request.cluster)
    judged = judge(settings, call.service.closed, cluster, request.project, request.spec)
    mistakes = [Mistake(where + m.pointer, m.detail) for m in judged.mistakes]
    tags = {**(judged.spec.tags if judged.spec else {}), **request.tags}
    mistakes += tag_mistakes(tags if judged.spec else request.tags, settings.limits)
    if judged.spec is None or mistakes:
        raise bad_spec(mistakes)
    spec = judged.spec
    priority = spec.queue.priority if request.priority is None else request.priority
    check_priority(call, request.project, cluster, quota, priority)
    job = Job(
        id=job_id,
        project=request.project,
        owner=call.caller.user,
        name=spec.name,
        cluster=cluster,
        priority=priority,
        num_ranks=spec.resources.num_ranks,
        run_dir=f"{settings.run_place(cluster)}/{request.project}/{job_id}",
        tags=tags,
        parent=parent,
    )
    return job, spec


def again(call: ApiCall, job: Job, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's spec with the values `settings` set at dotted paths.

    Raises the problem `bad_spec` if a path is empty, has an empty key (`a..b`), or passes through a
    value that is not a section. The result is not validated.
    """
    document = call.store.spec(job.id)
    for path, value in settings.items():
        try:
            set_at(document, path, value)
        except KeyError:
            mistake = Mistake(pointer("set", path), "the path does not lead to a section")
            raise bad_spec([mistake]) from None
    return document


def columns_of(call: ApiCall, job: Job, spec: JobSpec, changed: Iterable[str]) -> dict[str, Any]:
    """Return the columns that a resumed job gets from its new spec, of which `changed` was set.

    `changed` has dotted paths. Raises the problem `bad_spec` for tags, and `forbidden` for a higher
    priority.
    """
    paths = set(changed)  # values of other fields may be older than the job's
    columns: dict[str, Any] = {"num_ranks": spec.resources.num_ranks}
    if "name" in paths:
        columns["name"] = spec.name
    if tags := {k: v for k, v in spec.tags.items() if paths & {"tags", f"tags.{k}"}}:
        columns["tags"] = {**job.tags, **tags}
        if mistakes := tag_mistakes(columns["tags"], call.service.settings.limits, job.tags):
            raise bad_spec(mistakes)
    if paths & {"queue", "queue.priority"}:
        columns["priority"] = priority = spec.queue.priority
        if priority > job.priority:
            quota = quota_for(call, Action.CHANGE_JOB, job.project)
            check_priority(call, job.project, job.cluster, quota, priority)
    return columns


def check_resumable(job: Job, before: Mapping[str, Any], after: JobSpec) -> None:
    """Check that a succeeded job's new spec `after` only makes its training longer.

    `before` is the present spec. Raises the problem `final` if the training does not become longer,
    and the problem `bad_spec` if something else changes, too. A change of `train.early_stopping`
    counts as longer training. Jobs in other states pass.
    """
    if job.state != JobState.SUCCEEDED:
        return
    if _trains_on(before.get("train") or {}, after):
        if problems := different_fields(before, after):
            raise bad_spec([Mistake("/set", problem) for problem in problems])
        return
    raise Problem(
        "final",
        f"job {job.id} has succeeded: there is nothing to resume",
        hint="To train longer, set train.epochs or train.max_steps higher, or change "
        "train.early_stopping; a clone trains from the start.",
    )


def _trains_on(before: Mapping[str, Any], after: JobSpec) -> bool:
    now, most = after.train.model_dump(mode="json"), before.get("max_steps")
    epochs, done = now["epochs"], before.get("epochs", 1)
    # The number that `auto` becomes depends on the data, so any other value may be more.
    more_epochs = int(epochs != done) if "auto" in (epochs, done) else epochs - done
    more_steps = 0 if most is None else (now["max_steps"] or inf) - most
    other_end = now["early_stopping"] != before.get("early_stopping")
    return bool(min(more_epochs, more_steps) >= 0 and max(more_epochs, more_steps, other_end) > 0)


def bad_spec(mistakes: Sequence[Mistake]) -> Problem:
    count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return Problem(
        "bad_spec",
        f"the spec has {count}",
        hint="POST /v1/jobs:validate checks without submitting.",
        errors=mistakes,
    )


def quota_for(call: ApiCall, action: Action, project: str) -> Quota:
    """Check that the caller may do the action in a project, and return the project's quota.

    Raises the problem `not_found` (also if the caller may not see the project) or `forbidden`.
    """
    call.require(action)
    caller = call.caller
    quota = caller.quotas.get(project)
    if quota is None and (caller.is_admin or project in caller.roles):
        known = call.store.project(project)
        quota = known.quota if known is not None else None
    if quota is None:
        yours = ", ".join(sorted(caller.roles))
        hint = f"Name one of your projects: {yours}." if yours else None
        raise not_found(f"project {project!r}", hint)
    call.allow(action, project, caller.user)
    return quota


def usable_clusters(settings: Settings, project: str) -> list[str]:
    found = settings.clusters.items()
    return sorted(name for name, p in found if not p.projects or project in p.projects)


def choose_cluster(settings: Settings, project: str, asked: str | None) -> str:
    """Return the requested cluster (`asked`), or the project's only cluster if `asked` is `None`.

    Raises the problem `bad_spec` if the project may not use the requested cluster. Also raises it
    without a requested cluster, unless the project may use exactly one.
    """
    usable = usable_clusters(settings, project)
    if asked in usable:
        return asked
    if asked is None and len(usable) == 1:
        return usable[0]
    names, hint = ", ".join(usable), "Name one as `cluster`."
    detail = f"the project may use several clusters: {names}"
    if not usable:
        detail, hint = "the project may use no cluster", "Ask an operator of the service for one."
    elif asked is not None:
        detail = f"the project cannot use a cluster {asked!r}; it may use: {names}"
    raise Problem("bad_spec", detail, hint=hint, errors=[Mistake("/cluster", detail)])


def check_priority(call: ApiCall, project: str, cluster: str, quota: Quota, priority: int) -> None:
    """Raise the problem `forbidden` if a priority is above the caller's limit (`max_priority`)."""
    profile = call.service.settings.clusters.get(cluster)
    of_cluster = profile.max_priority if profile else 0
    most = max_priority(call.caller, project, quota.max_priority, of_cluster)
    if priority > most:
        raise Problem(
            "forbidden",
            f"priority {priority} is more than {most}, the highest that you may request in "
            f"project {project} on cluster {cluster}",
            hint="Request a lower priority, or ask an operator of the project.",
            errors=[Mistake("/priority", f"at most {most}")],
        )
