"""Whether a follower may still see a job: looked up again every few seconds.

All followers of one job with one token share a look.
"""

from typing import NamedTuple, cast

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from distrain.service.access import Action
from distrain.service.api.dependencies import Parts, caller_now, require, seen_job, shown_secret
from distrain.service.api.streams import streams_of
from distrain.service.values import Job, Principal


class StillSeen(NamedTuple):
    caller: Principal
    job: Job | None  # `None` for followers of all jobs


async def look_again(request: Request, service: Parts, job_id: str | None) -> StillSeen:
    """Look up caller and job again, or share a look of the last second (`not_found`, ...)."""

    def look() -> StillSeen:
        caller = caller_now(request, service)
        require(caller, Action.SEE_JOB)
        job = None if job_id is None else seen_job(service.store, caller, job_id)
        return StillSeen(caller, job)

    shown = shown_secret(request)
    if shown is None:  # whom a proxy names: by more than a secret of their own
        return await run_in_threadpool(look)
    looks = streams_of(request.app).looks
    seen = await looks.get((shown, job_id), lambda: run_in_threadpool(look))
    return cast(StillSeen, seen)
