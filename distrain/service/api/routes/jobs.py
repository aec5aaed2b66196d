"""Existing jobs: list, read, change, cancel, delete."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from distrain.jobs.api_answers import Job as JobAnswer, JobPage, Spec
from distrain.service.access.policy import tag_mistakes
from distrain.service.access.rules import Action, visible
from distrain.service.api.bodies import (
    CancelRequest,
    JobChangeRequest,
    documents,
)
from distrain.service.api.dependencies import (
    ApiCall,
    ApiParts,
    Call,
    PathId,
    Service,
    VisibleJob,
)
from distrain.service.api.openapi import answers, as_json
from distrain.service.api.problems import Problem
from distrain.service.api.submission import bad_spec, check_priority, quota_for
from distrain.service.decisions.api_values import STATES
from distrain.service.decisions.wait_reasons import not_configured
from distrain.service.store.errors import WrongState
from distrain.service.store.listing import JobFilter
from distrain.service.values import Job, Phase

router = APIRouter(tags=["jobs"])

_JOB = {"description": "The job."}
_CANCELLING = {"description": "The job, which is cancelled or will be soon."}
ShownState = Annotated[str, Field(pattern=f"^({'|'.join(STATES)})$")]


@router.get("/v1/jobs", response_model=JobPage, responses=answers())
def list_jobs(
    call: Call,
    project: Annotated[str | None, Query(description="Only jobs of this project.")] = None,
    owner: Annotated[str | None, Query(description="Only jobs of this user.")] = None,
    state: Annotated[
        tuple[ShownState, ...],
        Query(max_length=20, description="Only jobs in this state; repeat it for several states."),
    ] = (),
    cluster: Annotated[str | None, Query(description="Only jobs of this cluster.")] = None,
    tag: Annotated[
        tuple[Annotated[str, Field(pattern="=")], ...],
        Query(
            max_length=8,
            description="Only jobs with this tag, as `KEY=VALUE`. If it is repeated, jobs need all "
            "the tags.",
        ),
    ] = (),
    text: Annotated[
        str, Query(max_length=128, description="Only jobs whose name or id contains this text.")
    ] = "",
    limit: Annotated[
        int, Query(ge=1, le=200, description="The maximum number of jobs in a page.")
    ] = 50,
    cursor: Annotated[
        int | None, Query(ge=1, lt=2**63, description="The `next_cursor` of the previous page.")
    ] = None,
) -> Response:
    """List the jobs that the caller may see, newest first. The response has no total number."""
    call.require(Action.SEE_JOB)
    wanted = JobFilter(
        project=project,
        owner=owner,
        states=state,
        cluster=cluster,
        tags=tuple((key, value) for key, _, value in (one.partition("=") for one in tag)),
        text=text,
        visible=visible(call.caller),
    )
    found = call.store.jobs(wanted, limit + 1, cursor)
    document = JobPage(
        jobs=documents(call.service, found[:limit]),
        next_cursor=str(found[limit - 1].seq) if len(found) > limit else None,
    )
    return as_json(document)


@router.get("/v1/jobs/{job_id}", responses=answers("not_found", others={200: _JOB}))
def get_job(job: VisibleJob, service: Service) -> JobAnswer:
    """Return a job: its state, progress and metrics."""
    return _shown(service, job)


@router.get("/v1/jobs/{job_id}/spec", responses=answers("not_found"))
def get_spec(job: VisibleJob, service: Service) -> Spec:
    """Return the spec of a job's current submission, with all defaults."""
    return Spec(spec=service.store.spec(job.id))


@router.patch(
    "/v1/jobs/{job_id}",
    responses=answers("not_found", "conflict", "final", "bad_spec", others={200: _JOB}),
)
def change_job(job_id: PathId, body: JobChangeRequest, call: Call) -> JobAnswer:
    """Change the priority of a waiting job, or tags of any job.

    Another priority is rejected if the job has started (409 `conflict`) or ended (409 `final`).
    """
    job = _changed_job(call, job_id, Action.CHANGE_JOB)
    if body.priority is not None and body.priority > job.priority:
        quota = quota_for(call, Action.CHANGE_JOB, job.project)
        check_priority(call, job.project, job.cluster, quota, body.priority)

    def check_tags(new: Mapping[str, str], old: Mapping[str, str]) -> None:
        if mistakes := tag_mistakes(new, call.service.settings.limits, old):
            raise bad_spec(mistakes)

    try:
        job = call.store.change(job.id, body.priority, body.tags or {}, check_tags)
    except WrongState as error:
        code = "final" if job.phase is Phase.FINAL else "conflict"
        raise Problem(code, error.message, hint=error.hint) from error
    return _shown(call.service, job)


@router.post(
    "/v1/jobs/{job_id}/cancel",
    status_code=202,
    responses=answers(
        "not_found",
        others={
            200: {"description": "The job, which had ended before.", "model": JobAnswer},
            202: _CANCELLING,
        },
    ),
)
def cancel(
    job_id: PathId, response: Response, call: Call, body: CancelRequest | None = None
) -> JobAnswer:
    """Cancel a job: a queued job ends at once; the ranks of a running job save a checkpoint first.

    A job on a cluster that is no longer configured ends at once; its ranks, if there are any, are
    not reached. A job that has ended is not changed.
    """
    job = _changed_job(call, job_id, Action.CANCEL_JOB)
    lost = "" if job.cluster in call.service.settings.clusters else not_configured(job.cluster)
    how = body or CancelRequest()
    was_final = job.phase is Phase.FINAL
    job = call.store.cancel(job.id, how.why, how.allowed_s, call.caller.user, lost)
    response.status_code = 200 if was_final else 202
    return _shown(call.service, job)


@router.delete(
    "/v1/jobs/{job_id}",
    status_code=204,
    responses=answers("not_found", "not_final"),
)
def delete_job(job_id: PathId, call: Call) -> None:
    """Delete an ended job from the service; its id cannot be used again.

    Its run folder is kept.
    """
    job = _changed_job(call, job_id, Action.CHANGE_JOB)
    if job.phase is not Phase.FINAL:
        raise Problem(
            "not_final", "a job that has not ended cannot be deleted", hint="Cancel it first."
        )
    call.store.delete(job.id)


def _changed_job(call: ApiCall, job_id: str, action: Action) -> Job:
    """Return a job after checking that the caller may do `action`.

    Raises the problem `not_found` or `forbidden` if the caller may not.
    """
    call.require(action)
    job = call.job(job_id)
    call.allow(action, job.project, job.owner)
    return job


def _shown(service: ApiParts, job: Job) -> JobAnswer:
    [document] = documents(service, [job])
    return document
