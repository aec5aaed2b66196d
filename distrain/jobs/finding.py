"""The search for a job by its id, or by the beginning of it."""

from collections.abc import Sequence
from difflib import get_close_matches

from distrain.errors import InputError
from distrain.jobs.status import JobStatus
from distrain.wording import some

_MOST_NAMED = 5


def find_id(ids: Sequence[str], word: str) -> str | None:
    """The id that is a word, or the only one that begins with it; `None` if none does.

    >>> find_id(["mlp-1", "mlp-12", "dlrm-1"], "mlp-1"), find_id(["dlrm-1"], "dl")
    ('mlp-1', 'dlrm-1')

    Raises:
        InputError: Several begin with it.
    """
    if word in ids:
        return word
    begun = [one for one in ids if word and one.startswith(word)]
    if len(begun) > 1:
        raise InputError(
            f"'{word}' is the beginning of several jobs' ids",
            where={"jobs": some(begun, _MOST_NAMED)},
            hint="Type more of the id.",
        )
    return begun[0] if begun else None


def find_job(jobs: Sequence[JobStatus], word: str) -> JobStatus:
    """The job that a word means, see `find_id`; an `InputError` if it is none, or several."""
    ids = [job.job_id for job in jobs]
    job_id = find_id(ids, word)
    if job_id is not None:
        return jobs[ids.index(job_id)]
    near = get_close_matches(word, ids, n=_MOST_NAMED, cutoff=0.5)
    named = some(near or ids, _MOST_NAMED)
    raise InputError(
        f"the scheduler knows no job '{word}'",
        where={"similar" if near else "jobs": named} if ids else {},
        hint="`distrain jobs` lists them. Of ended jobs a scheduler forgets the oldest, and of all "
        "jobs when it is started anew; their run directories stay, and `distrain train --resume "
        "RUN_DIR` goes on with one that has not succeeded.",
    )
