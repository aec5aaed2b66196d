"""New and resumed jobs: submit, validate, resume, clone."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from distrain.jobs.api_answers import (
    Job as JobAnswer,
    Mistake as MistakeDocument,
    Validation,
)
from distrain.jobs.run_paths import JOB_ID
from distrain.service.access.policy import Mistake, judge
from distrain.service.access.rules import Action, role_allows
from distrain.service.api.bodies import (
    CloneRequest,
    JobRequest,
    ResumeRequest,
    documents,
)
from distrain.service.api.dependencies import ApiCall, Call, PathId
from distrain.service.api.openapi import LOCATION, answers, as_json
from distrain.service.api.preflights import PreflightStarted, start_preflight
from distrain.service.api.problems import Problem
from distrain.service.api.submission import (
    again,
    bad_spec,
    check_resumable,
    checked,
    choose_cluster,
    columns_of,
    quota_for,
    request_sha256,
)
from distrain.service.store.errors import WrongState
from distrain.service.values import Job, Phase

router = APIRouter(tags=["jobs"])

_CODES = ("id_taken", "quota", "not_found", "bad_spec")
_REPLAY = {
    "description": "The job of an earlier equal request; nothing was changed.",
    "model": JobAnswer,
    "headers": LOCATION,
}
_CHECKING = {
    "description": "The spec is valid; a worker is checking its data.",
    "model": PreflightStarted,
    "headers": LOCATION,
}
_MADE = {"description": "The new job.", "headers": LOCATION}
_RESUMED = {"description": "The job, which is queued again.", "headers": LOCATION}
_NewId = Annotated[
    str, Path(pattern=f"^{JOB_ID}$", description="The id of the new job, chosen by the caller.")
]


@router.put(
    "/v1/jobs/{job_id}",
    status_code=201,
    response_model=JobAnswer,
    responses=answers(*_CODES, others={200: _REPLAY, 201: _MADE}),
)
def submit(job_id: _NewId, body: JobRequest, call: Call) -> Response:
    """Submit a job. A repeated request with the same body returns 200 and the existing job."""
    call.require(Action.SUBMIT)
    return put_job(call, job_id, body, request_sha256(call, body))


@router.post(
    "/v1/jobs/{job_id}/clone",
    status_code=201,
    response_model=JobAnswer,
    responses=answers(*_CODES, others={200: _REPLAY, 201: _MADE}),
)
def clone(job_id: PathId, body: CloneRequest, call: Call) -> Response:
    """Submit a new job with the spec, cluster, tags and priority of an existing job.

    The values in `set` replace those of the spec. If they contain tags, the existing job's tags are
    not copied. A repeated request with the same body returns 200 and the same new job.
    """
    call.require(Action.SUBMIT)
    parent = call.job(job_id)
    set_anew = body.set.get("queue.priority") is not None
    request = JobRequest.model_construct(  # not validated: the values are the parent's
        spec=again(call, parent, body.set),
        project=parent.project,
        cluster=parent.cluster,
        priority=None if set_anew else parent.priority,
        tags={} if any(path.startswith("tags") for path in body.set) else dict(parent.tags),
    )
    return put_job(call, body.id, request, request_sha256(call, body), "/set", parent.id)


@router.post(
    "/v1/jobs/{job_id}/resume",
    status_code=202,
    response_model=JobAnswer,
    responses=answers(
        "not_found",
        "bad_spec",
        "quota",
        "final",
        "not_final",
        "conflict",
        others={200: _REPLAY, 202: _RESUMED},
    ),
)
def resume(job_id: PathId, body: ResumeRequest, call: Call) -> Response:
    """Queue an ended job again; it continues from its last checkpoint.

    If `set` has `name`, `queue.priority` or tags, they are also those of the job. Tags are added to
    its present tags. If the job has succeeded, `set` must make its training longer, and may change
    nothing else of the training.

    - 409 `not_final`: the job has not ended.
    - 409 `final`: the job has succeeded, and `set` does not make its training longer.
    - 409 `conflict`: the job's `resumes` is not that of the request; read the job again.
    """
    call.require(Action.CHANGE_JOB)
    before = call.job(job_id)
    call.allow(Action.CHANGE_JOB, before.project, before.owner)
    document = again(call, before, body.set)
    choose_cluster(call.service.settings, before.project, before.cluster)  # may have changed
    judged = judge(
        call.service.settings, call.service.closed, before.cluster, before.project, document
    )
    if judged.spec is None:
        raise bad_spec([Mistake("/set" + m.pointer, m.detail) for m in judged.mistakes])
    if before.resumes == body.resumes:
        check_resumable(before, call.store.spec(before.id), judged.spec)
    document = judged.spec.model_dump(mode="json")
    new = columns_of(call, before, judged.spec, body.set)
    try:
        job, is_new = call.store.resume(before.id, document, new, body.resumes)
    except WrongState as error:
        code = "conflict" if before.phase is Phase.FINAL else "not_final"
        raise Problem(code, error.message, hint=error.hint) from error
    return _answer(call, job, 202 if is_new else 200)


@router.post(
    "/v1/jobs:validate",
    response_model=Validation,
    responses=answers("not_found", "bad_spec", others={202: _CHECKING}),
)
def validate(
    body: JobRequest,
    call: Call,
    data: Annotated[
        bool,
        Query(description="Whether a worker of the cluster also checks the data, if all is valid."),
    ] = False,
) -> Validation | Response:
    """Check a job request as the submission would, without submitting it.

    The response (200) lists all mistakes of the spec and the tags as `errors`; if there are none,
    it lists a mistake of the priority. A request without a usable cluster returns 422. With `data`,
    a valid request returns 202, with the URL of the check's result.
    """
    quota_for(call, Action.SUBMIT, body.project)
    cluster = choose_cluster(call.service.settings, body.project, body.cluster)
    spec, mistakes = None, list[Mistake]()
    try:
        _, spec = checked(call, "", body.model_copy(update={"cluster": cluster}))
    except Problem as problem:
        mistakes = [*problem.errors] or [Mistake("", problem.detail)]
    document = spec.model_dump(mode="json") if spec else None
    if data and document:
        started = start_preflight(call, cluster, document)
        return JSONResponse(started.model_dump(), 202, headers={"Location": started.url})
    return Validation(
        valid=not mistakes,
        spec=document,
        errors=[MistakeDocument(pointer=m.pointer, detail=m.detail) for m in mistakes],
    )


def put_job(
    call: ApiCall,
    job_id: str,
    request: JobRequest,
    sha256: str,
    where: str = "/spec",
    parent: str | None = None,
) -> Response:
    """Submit a job, and return the response: 201 with the new job.

    It is 200, with the existing job, if an equal earlier request has submitted the job. `sha256` is
    the request's `request_sha256`; `where` and `parent` are as in `checked`. Raises the problems of
    `checked`, and the errors of the store.
    """
    try:
        new, spec = checked(call, job_id, request, where, parent)
    except Problem:
        # A repeated request returns its job, even if the request would be rejected today.
        owner = call.caller.user
        job = call.store.made_before(job_id, owner, sha256)
        if job is None or not role_allows(call.caller, Action.SEE_JOB, job.project, job.owner):
            raise
        return _answer(call, job, 200)
    document = spec.model_dump(mode="json")
    job, is_new = call.store.submit(new, document, sha256)
    return _answer(call, job, 201 if is_new else 200)


def _answer(call: ApiCall, job: Job, status: int) -> Response:
    [document] = documents(call.service, [job])
    return as_json(document, status, Location=f"/v1/jobs/{job.id}")
