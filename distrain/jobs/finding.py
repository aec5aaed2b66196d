"""The search for a job by its id, or by the beginning of it."""

from collections.abc import Sequence
from difflib import get_close_matches

from distrain.errors import InputError
from distrain.jobs.status import JobStatus
from distrain.wording import some

_MOST_NAMED = 5


def find_job(jobs: Sequence[JobStatus], word: str) -> JobStatus:
    """The job of this id, or the only one whose id begins with it.

    Raises:
        InputError: There is none, or there are several.
    """
    same = [job for job in jobs if job.job_id == word]
    begun = same or [job for job in jobs if word and job.job_id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise InputError(
            f"'{word}' is the beginning of several jobs' ids",
            where={"jobs": some([job.job_id for job in begun], _MOST_NAMED)},
            hint="Type more of the id.",
        )
    ids = [job.job_id for job in jobs]
    near = get_close_matches(word, ids, n=_MOST_NAMED, cutoff=0.5)
    named = some(near or ids, _MOST_NAMED)
    raise InputError(
        f"the scheduler knows no job '{word}'",
        where={"similar" if near else "jobs": named} if ids else {},
        hint="`distrain jobs` lists them. Of ended jobs a scheduler forgets the oldest, and of all "
        "jobs when it is started anew; their run directories stay, and `distrain train --resume "
        "RUN_DIR` goes on with one that has not succeeded.",
    )
