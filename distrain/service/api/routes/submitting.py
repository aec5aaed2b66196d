"""New and resumed jobs: submit, validate, resume, clone."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from distrain.service.access.policy import Mistake, tag_mistakes
from distrain.service.access.rules import Action
from distrain.service.api.answers import ETAG, LOCATION, answers, as_json
from distrain.service.api.dependencies import ApiCall, Call, Counted, audit_note
from distrain.service.api.documents import (
    AgainRequest,
    JobDocument,
    JobRequest,
    MistakeDocument,
    Placement,
    Validation,
    contact_of,
    etag,
    job_document,
)
from distrain.service.api.preflights import PreflightStarted, start_preflight
from distrain.service.api.problems import Problem
from distrain.service.api.submission import (
    IdempotencyKey,
    Wanted,
    again,
    bad_spec,
    check_resumable,
    checked,
    choose_cluster,
    judge_for,
    made_before,
    make_key,
    quota_for,
)
from distrain.service.decide.api_values import utc
from distrain.service.store.auditing import Deed
from distrain.service.store.errors import NotNow
from distrain.service.store.store import Store
from distrain.service.values import Job, NewJob, RequestKey

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
def submit(body: JobRequest, call: Call, key: IdempotencyKey = None) -> Response:
    """Submit a job. A repeated key and body answer 200 with the first request's job."""
    call.require(Action.SUBMIT)
    taken = make_key(call, key, body)
    wanted = Wanted(body.project, body.cluster, body.spec, body.priority, body.tags, "/spec")
    try:
        new, is_counted = checked(call, wanted)
    except Problem:
        # What was good when the key came first is answered as it was then.
        job, is_new = made_before(call, taken), False
        if job is None:
            raise
    else:
        job, is_new = _put(call, new, taken, is_counted)
    return _made(call, job, 201 if is_new else 200)


@router.post(
    "/v1/jobs/{job_id}/clone",
    status_code=201,
    response_model=JobDocument,
    responses=answers(*_KEYS, others={200: _REPLAY, 201: _MADE}),
)
def clone(job_id: str, body: AgainRequest, call: Call, key: IdempotencyKey = None) -> Response:
    """Submit a new job with another job's spec, tags and priority, and with changed settings."""
    call.require(Action.SUBMIT)
    taken = make_key(call, key, body)
    job, is_new = made_before(call, taken), False
    if job is None:
        parent = call.job(job_id)
        set_anew = body.set.get("queue.priority") is not None
        wanted = Wanted(
            parent.project,
            parent.cluster,
            again(call, parent, body.set),
            None if set_anew else parent.priority,
            {} if any(path.startswith("tags") for path in body.set) else parent.tags,
            "/set",
            parent.id,
        )
        new, is_counted = checked(call, wanted)
        job, is_new = _put(call, new, taken, is_counted)
    return _made(call, job, 201 if is_new else 200)


@router.post(
    "/v1/jobs/{job_id}/resume",
    status_code=202,
    response_model=JobDocument,
    responses=answers(*_KEYS, "final", "not_final", others={200: _REPLAY, 202: _MADE}),
)
def resume(job_id: str, body: AgainRequest, call: Call, key: IdempotencyKey = None) -> Response:
    """Queue an ended job again; it goes on from its last checkpoint.

    A job that has succeeded goes on only where `set` makes its training longer.
    """
    call.require(Action.CHANGE_JOB)
    taken = make_key(call, key, body)
    job, is_new = made_before(call, taken), False
    if job is None:
        before = call.job(job_id)
        call.allow(Action.CHANGE_JOB, before.project, before.owner)
        wanted = Wanted(
            before.project,
            before.cluster,
            again(call, before, body.set),
            before.priority,
            {},
            "/set",
        )
        choose_cluster(call.service.settings, before.project, before.cluster)  # or it may no longer
        judged = judge_for(call.service.settings, before.cluster, before.project, wanted.document)
        if judged.spec is None:
            raise bad_spec([Mistake("/set" + m.pointer, m.detail) for m in judged.mistakes])
        check_resumable(before, call.store.spec(before.id), judged.spec)
        document = judged.spec.model_dump(mode="json")
        try:
            job, is_new = call.store.resume(
                before.id,
                document,
                judged.spec.resources.num_ranks,
                taken,
                _deed_about(call, before),
            )
            audit_note(call.request).written = is_new
        except NotNow as error:
            raise Problem("not_final", error.message, hint=error.hint) from error
    return _made(call, job, 202 if is_new else 200)


@router.post(
    "/v1/jobs:validate",
    response_model=Validation,
    responses=answers("not_found", "bad_spec", others={202: _CHECKING}),
)
def validate(
    body: JobRequest,
    call: Call,
    data: Annotated[
        bool, Query(description="Whether a worker is to look at the data as well.")
    ] = False,
) -> Validation | Response:
    """Validate a submission; nothing is submitted."""
    audit_note(call.request).keep = False
    quota_for(call, Action.SUBMIT, body.project)
    cluster = choose_cluster(call.service.settings, body.project, body.cluster)
    judged = judge_for(call.service.settings, cluster, body.project, body.spec)
    mistakes = [Mistake("/spec" + m.pointer, m.detail) for m in judged.mistakes]
    mistakes += tag_mistakes(body.tags, call.service.settings.limits, "/tags")
    if judged.spec is not None and not mistakes:
        wanted = Wanted(body.project, cluster, body.spec, body.priority, body.tags, "/spec")
        try:
            checked(call, wanted)
        except Problem as problem:  # the priority, or the tags of both together
            mistakes += [*problem.errors] or [Mistake("", problem.detail)]
    if data and judged.spec is not None and not mistakes:
        spec = judged.spec.model_dump(mode="json")
        started = start_preflight(call, cluster, spec)
        headers = {"Location": started.url}
        return JSONResponse(started.model_dump(), 202, headers=headers)
    return Validation(
        valid=not mistakes,
        spec=judged.spec.model_dump(mode="json") if judged.spec else None,
        errors=[MistakeDocument(pointer=m.pointer, detail=m.detail) for m in mistakes],
        placement=_placement(
            call.store, cluster, judged.spec.resources.num_ranks if judged.spec else None
        ),
    )


def _placement(store: Store, cluster: str, num_ranks: int | None) -> Placement:
    row = next((r for r in store.clusters() if r.name == cluster), None)
    return Placement(
        cluster=cluster,
        num_ranks=num_ranks,
        workers=dict(row.state.get("workers") or {}) if row else None,
        observed_at=utc(row.observed_at_s) if row else None,
    )


def _put(call: ApiCall, new: NewJob, key: RequestKey, is_counted: bool) -> tuple[Job, bool]:
    deed = _deed_about(call, new)
    job, is_new = call.store.submit(new, key, deed, is_counted=is_counted)
    audit_note(call.request).written = is_new
    return job, is_new


def _made(call: ApiCall, job: Job, status: int) -> Response:
    call.note(job.id, project=job.project, cluster=job.cluster)
    document = job_document(job, call.service.now_s(), contact_of(call.store, job))
    headers = {"Location": f"/v1/jobs/{job.id}", "ETag": etag(document)}
    return as_json(document, status, **headers)


def _deed_about(call: ApiCall, job: Job | NewJob) -> Deed:
    """The audit row of a job that is made or resumed."""
    of_job = {"project": job.project, "cluster": job.cluster}
    note = replace(audit_note(call.request), target=job.id, details=of_job)
    return note.deed(call.request.scope, "ok")
