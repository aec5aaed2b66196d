"""New and resumed jobs: submit, validate, resume, clone."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from distrain.service.access import Action, Mistake, tag_mistakes
from distrain.service.api.answers import ETAG, LOCATION, answers, as_json
from distrain.service.api.dependencies import (
    Caller,
    Counted,
    Parts,
    Service,
    allow,
    audit_note,
    require,
    seen_job,
)
from distrain.service.api.documents import (
    AgainRequest,
    JobDocument,
    JobRequest,
    MistakeDocument,
    Placement,
    PreflightStarted,
    Validation,
)
from distrain.service.api.preflights import start_preflight
from distrain.service.api.problems import Problem
from distrain.service.api.showing import contact_of, etag, job_document
from distrain.service.api.submission import (
    Checked,
    IdempotencyKey,
    Wanted,
    again,
    bad_spec,
    check,
    check_resumable,
    choose_cluster,
    judge_for,
    made_before,
    make_key,
    new_job,
    quota_for,
)
from distrain.service.decide import utc
from distrain.service.store import Deed, NotNow
from distrain.service.values import Job, Key, NewJob

router = APIRouter(tags=["jobs"], dependencies=[Counted])

_KEYS = ("no_key", "key_reused", "key_in_flight", "quota", "not_found", "bad_spec")
_REPLAY = {
    "description": "The key came with the same request before: the job that it made.",
    "model": JobDocument,
    "headers": {**LOCATION, **ETAG},
}
_CHECKING = {
    "description": "The spec is good; a worker is checking its data.",
    "model": PreflightStarted,
    "headers": LOCATION,
}
_MADE = {"description": "The job.", "headers": {**LOCATION, **ETAG}}


@router.post(
    "/v1/jobs",
    status_code=201,
    response_model=JobDocument,
    responses=answers(*_KEYS, others={200: _REPLAY, 201: _MADE}),
)
def submit(
    body: JobRequest,
    request: Request,
    caller: Caller,
    service: Service,
    key: IdempotencyKey = None,
) -> Response:
    """Submit a job. A repeated key and body answer 200 with the first request's job."""
    require(caller, Action.SUBMIT)
    taken = make_key(request, caller, key, body)
    wanted = Wanted(body.project, body.cluster, body.spec, body.priority, body.tags, "/spec")
    try:
        checked = check(service, caller, wanted)
    except Problem:
        # What was good when the key came first is answered as it was then.
        job, is_new = made_before(service, caller, taken), False
        if job is None:
            raise
    else:
        new = new_job(service.settings, caller, body.project, checked, service.now_s())
        job, is_new = _put(request, service, new, taken, checked)
    return _made(request, service, job, 201 if is_new else 200)


@router.post(
    "/v1/jobs/{job_id}/clone",
    status_code=201,
    response_model=JobDocument,
    responses=answers(*_KEYS, others={200: _REPLAY, 201: _MADE}),
)
def clone(
    job_id: str,
    body: AgainRequest,
    request: Request,
    caller: Caller,
    service: Service,
    key: IdempotencyKey = None,
) -> Response:
    """Submit a new job with another job's spec, tags and priority, and with changed settings."""
    require(caller, Action.SUBMIT)
    taken = make_key(request, caller, key, body)
    job, is_new = made_before(service, caller, taken), False
    if job is None:
        parent = seen_job(service.store, caller, job_id)
        set_anew = body.set.get("queue.priority") is not None
        wanted = Wanted(
            parent.project,
            parent.cluster,
            again(service, parent, body.set),
            None if set_anew else parent.priority,
            {} if any(path.startswith("tags") for path in body.set) else parent.tags,
            "/set",
        )
        checked = check(service, caller, wanted)
        new = new_job(service.settings, caller, parent.project, checked, service.now_s(), parent.id)
        job, is_new = _put(request, service, new, taken, checked)
    return _made(request, service, job, 201 if is_new else 200)


@router.post(
    "/v1/jobs/{job_id}/resume",
    status_code=202,
    response_model=JobDocument,
    responses=answers(*_KEYS, "final", "not_final", others={200: _REPLAY, 202: _MADE}),
)
def resume(
    job_id: str,
    body: AgainRequest,
    request: Request,
    caller: Caller,
    service: Service,
    key: IdempotencyKey = None,
) -> Response:
    """Queue an ended job again; it goes on from its last checkpoint.

    A job that has succeeded goes on only where `set` makes its training longer.
    """
    require(caller, Action.CHANGE_JOB)
    taken = make_key(request, caller, key, body)
    job, is_new = made_before(service, caller, taken), False
    if job is None:
        before = seen_job(service.store, caller, job_id)
        allow(caller, Action.CHANGE_JOB, before.project, before.owner)
        wanted = Wanted(
            before.project,
            before.cluster,
            again(service, before, body.set),
            before.priority,
            {},
            "/set",
        )
        choose_cluster(service.settings, before.project, before.cluster)  # or it may no longer
        judged = judge_for(service.settings, before.cluster, before.project, wanted.document)
        if judged.spec is None:
            raise bad_spec([Mistake("/set" + m.pointer, m.detail) for m in judged.mistakes])
        check_resumable(before, service.store.spec(before.id), judged.spec)
        document = judged.spec.model_dump(mode="json")
        try:
            job, is_new = service.store.resume(
                before.id,
                document,
                judged.spec.resources.num_ranks,
                taken,
                _told(request, before),
            )
            audit_note(request).written = is_new
        except NotNow as error:
            raise Problem("not_final", error.message, hint=error.hint) from error
    return _made(request, service, job, 202 if is_new else 200)


@router.post(
    "/v1/jobs:validate",
    response_model=Validation,
    responses=answers("not_found", "bad_spec", others={202: _CHECKING}),
)
def validate(
    body: JobRequest,
    request: Request,
    caller: Caller,
    service: Service,
    data: Annotated[
        bool, Query(description="Whether a worker is to look at the data as well.")
    ] = False,
) -> Validation | Response:
    """Validate a submission; nothing is submitted."""
    audit_note(request).keep = False
    quota_for(service, caller, Action.SUBMIT, body.project)
    cluster = choose_cluster(service.settings, body.project, body.cluster)
    judged = judge_for(service.settings, cluster, body.project, body.spec)
    mistakes = [Mistake("/spec" + m.pointer, m.detail) for m in judged.mistakes]
    mistakes += tag_mistakes(body.tags, service.settings.limits, "/tags")
    if judged.spec is not None and not mistakes:
        wanted = Wanted(body.project, cluster, body.spec, body.priority, body.tags, "/spec")
        try:
            check(service, caller, wanted)
        except Problem as problem:  # the priority, or the tags of both together
            mistakes += [*problem.errors] or [Mistake("", problem.detail)]
    if data and judged.spec is not None and not mistakes:
        spec = judged.spec.model_dump(mode="json")
        started = start_preflight(service, caller, cluster, spec)
        headers = {"Location": started.url}
        return JSONResponse(started.model_dump(), 202, headers=headers)
    return Validation(
        valid=not mistakes,
        spec=judged.spec.model_dump(mode="json") if judged.spec else None,
        errors=[MistakeDocument(pointer=m.pointer, detail=m.detail) for m in mistakes],
        placement=_placement(
            service, cluster, judged.spec.resources.num_ranks if judged.spec else None
        ),
    )


def _placement(service: Parts, cluster: str, num_ranks: int | None) -> Placement:
    row = next((r for r in service.store.clusters() if r.name == cluster), None)
    return Placement(
        cluster=cluster,
        num_ranks=num_ranks,
        workers=dict(row.state.get("workers") or {}) if row else None,
        observed_at=utc(row.observed_at_s) if row else None,
    )


def _put(
    request: Request, service: Parts, new: NewJob, key: Key, checked: Checked
) -> tuple[Job, bool]:
    deed = _told(request, new)
    job, is_new = service.store.submit(new, key, deed, is_counted=checked.is_counted)
    audit_note(request).written = is_new
    return job, is_new


def _made(request: Request, service: Parts, job: Job, status: int) -> Response:
    note = audit_note(request)
    note.target, note.details = job.id, {"project": job.project, "cluster": job.cluster}
    document = job_document(job, service.now_s(), contact_of(service.store, job))
    headers = {"Location": f"/v1/jobs/{job.id}", "ETag": etag(document)}
    return as_json(document, status, **headers)


def _told(request: Request, job: Job | NewJob) -> Deed:
    """The audit row of a job that is made or resumed."""
    of_job = {"project": job.project, "cluster": job.cluster}
    note = replace(audit_note(request), target=job.id, details=of_job)
    return note.deed(request.scope, "ok")
