"""A job in a few figures, as lists of jobs show it, and the search for one by its id."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from distrain.errors import InputError
from distrain.jobs.states import JobState
from distrain.jobs.view import known_fields
from distrain.wording import some

_MOST_NAMED = 5


@dataclass(frozen=True)
class Listing:
    """A job at one moment.

    Attributes:
        state: One of `JobState`, or a state of a later version.
        reason: One word for why it ended badly.
        why_pending: Why it does not run yet, or not again.
        attempt: The current or last attempt, from 1; 0 before the first.
        num_ranks: Ranks that it has; while it has none, those it wants.
        restarts: Attempts that ended early and were followed by others.
        step: Steps that its last record holds.
        rows_per_s: Speed of its last record, while it runs.
        loss: Of the rows of its last record of training; `valid_loss` of its last validation, and
            the AUCs alike.
        age_s: Seconds since it was submitted.
        priority: Its place in the queue goes by this, then by age.
        run_dir: Its run directory, as the submitter named it.
    """

    job_id: str
    name: str
    state: str
    attempt: int
    num_ranks: int
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    restarts: int = 0
    step: int = 0
    num_steps: int | None = None
    rows_per_s: float | None = None
    loss: float | None = None
    auc: float | None = None
    valid_loss: float | None = None
    valid_auc: float | None = None
    age_s: float = 0.0
    priority: int = 0
    run_dir: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return any(self.state == state for state in JobState if state.is_final)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Listing":
        """The inverse of `to_json`; keys that this version does not know are left out.

        Raises:
            TypeError: A field without a default is missing.
        """
        return cls(**known_fields(cls, document))


def find_job(jobs: Sequence[Listing], word: str) -> Listing:
    """The job whose id is a word that somebody typed, or the only one whose id begins with it.

    Raises:
        InputError: There is none such, or there are several.
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
