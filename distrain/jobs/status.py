"""A job as everybody says it: one value with one JSON form, from the scheduler to the screen."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any

from distrain.errors import InputError
from distrain.formatting import duration, some
from distrain.jobs.states import JobState
from distrain.jobs.view import JSON_VERSION

LARGEST = 2**63 - 1  # the largest whole number of a database

MOST_CHARACTERS = 8000
"""Of a message in a row: each change of a job copies its message into an event."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs


def is_storable(text: str) -> bool:
    r"""Whether every database and JSON reader takes a text.

    >>> is_storable("a\tb"), is_storable("a\0b"), is_storable("\udcff")
    (True, False, False)
    """
    return (text.isascii() and "\0" not in text) or _UNSTORABLE.search(text) is None


def storable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""A text of at most `most` characters that every database and JSON reader takes.

    What users' code raises becomes a job's message. One that could not be written would keep all
    rows of its transaction from being written, again and again.

    >>> storable("a\0b\udcff"), storable("abcdef", 4)
    ('a\ufffdb\ufffd', 'abc…')
    """
    plain = text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a database can hold.

    >>> is_number(0.5), is_number(float("nan")), is_number(2**70), is_number(True)
    (True, False, False, False)
    """
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LARGEST <= value <= LARGEST  # false for NaN
    )


def finite(value: Any) -> Any:
    """JSON values with `None` in place of each number that JSON does not have.

    >>> finite({"loss": float("nan"), "seconds": [1.5, float("inf")]})
    {'loss': None, 'seconds': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value


FINAL_STATES = frozenset(str(state) for state in JobState if state.is_final)

_MOST = {"state": 32, "reason": 64, "message": MOST_CHARACTERS, "why_pending": 2000}
"""Characters of the texts that are cut: what the database's columns hold, or less."""

_MOST_OF_A_NAME = 4096  # longer ids and places are refused: cut, they would be others

_MOST_TARGETS = 16
"""Targets in a job's figures, and metrics of each; the names of both are cut, too."""
_MOST_OF_A_TARGET = 64


def _figure(about: str) -> Any:
    return field(default=None, metadata={"about": about})


@dataclass(frozen=True, kw_only=True)
class JobFigures:
    """A job's progress in numbers, each `None` while it is not known."""

    restarts: int | None = _figure("Attempts that ended early and were followed by others.")
    step: int | None = _figure("Steps that have been taken.")
    num_steps: int | None = _figure("Steps that it will take.")
    rows_per_s: float | None = _figure("Rows trained per second.")
    loss: float | None = _figure("Of the last report of training; `valid_loss` counts.")
    auc: float | None = _figure("Of the same rows as `loss`.")
    valid_loss: float | None = _figure(
        "Of the validation of the saved model; while it trains, of the last validation."
    )
    valid_auc: float | None = _figure("Of the same validation as `valid_loss`.")
    model_step: int | None = _figure(
        "Steps of training that the saved model has had; after a refit, those of the best "
        "validation before it."
    )
    refit_steps: int | None = _figure(
        "Steps of the second training, with the validation rows; null without `train.refit`."
    )
    eta_s: float | None = _figure("Seconds until its end, at its speed of late.")
    checkpoints: int | None = _figure("Checkpoints that were written.")
    gpus: int | None = _figure("Ranks of the last attempt that compute on a GPU of their own.")
    targets: Mapping[str, Mapping[str, float]] | None = _figure(
        "Metrics by name of each target but the first binary one, by its name; of the last report "
        "of training."
    )
    valid_targets: Mapping[str, Mapping[str, float]] | None = _figure(
        "The same, of the validation of `valid_loss`."
    )

    @cached_property
    def figures(self) -> dict[str, Any]:
        known = ((name, getattr(self, name)) for name in FIGURES)
        return {name: value for name, value in known if value is not None}


FIGURES = {one.name: one for one in fields(JobFigures)}
"""Fields of `JobFigures` by name; `metadata["about"]` describes one."""

_WHOLE = {name for name, one in FIGURES.items() if one.type == int | None}
_OF_TARGETS = ("targets", "valid_targets")


def figures_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures in a document of any version; what is no number counts as not known.

    >>> figures_in({"step": 40.0, "loss": 0.5, "auc": "high", "later": 1})
    {'step': 40, 'loss': 0.5}
    """
    known = ((name, document.get(name)) for name in FIGURES)
    numbers = {
        name: int(value) if name in _WHOLE else value
        for name, value in known
        if value is not None and name not in _OF_TARGETS and is_number(value)
    }
    found = {name: targets_in(document.get(name)) for name in _OF_TARGETS}
    return numbers | {name: targets for name, targets in found.items() if targets}


def targets_in(value: object) -> dict[str, dict[str, float]] | None:
    """Metrics of targets, bounded in number and in length; `None` if there are none.

    >>> targets_in({"price": {"rmse": 2.5, "r2": None}, "bad": 1})
    {'price': {'rmse': 2.5}}
    """
    targets = {}
    for name, metrics in metrics_in(value).items():
        kept = {metric: number for metric, number in metrics.items() if number is not None}
        if kept:
            targets[name] = kept
    return targets or None


def gpus_in(places: Iterable[object]) -> int:
    """How many of the places of ranks are on a GPU.

    >>> gpus_in([{"host": "a", "device": "cuda:0"}, {"host": "a", "device": "cpu"}, None])
    1
    """
    devices = [place.get("device") for place in places if isinstance(place, Mapping)]
    return sum(str(device).startswith("cuda") for device in devices)


def metrics_in(value: object) -> dict[str, dict[str, float | None]]:
    """As `targets_in`, with the metrics that are not defined.

    >>> metrics_in({"price": {"rmse": 2.5, "r2": None}, "bad": 1})
    {'price': {'rmse': 2.5, 'r2': None}, 'bad': {}}
    """
    targets = {}
    for name, metrics in islice(_items_of(value), _MOST_TARGETS):
        items = (one for one in _items_of(metrics) if one[1] is None or is_number(one[1]))
        targets[_name_of(name)] = {
            _name_of(metric): number for metric, number in islice(items, _MOST_TARGETS)
        }
    return targets


def _items_of(value: object) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else ()


def _name_of(name: object) -> str:
    return storable(str(name), _MOST_OF_A_TARGET)


def time_left(job: Mapping[str, Any], decimals: int = 1) -> str:
    """A job's time until its end, for people; "-" if it is not known.

    >>> time_left({"eta_s": 90}), time_left({})
    ('1m30s', '-')
    """
    return duration(job.get("eta_s"), decimals)


@dataclass(frozen=True)
class JobStatus(JobFigures):
    job_id: str
    name: str = ""
    state: str = ""  # one of `JobState`, or a state of a later version
    attempt: int = 0  # the current or last attempt, from 1; 0 before the first
    num_ranks: int = 0  # ranks that it has; while it has none, those it wants
    reason: str | None = None  # one word for why it ended badly
    message: str | None = None  # the same for people
    why_pending: str = ""  # why it does not run yet, or not again
    run_dir: str = ""  # its run directory, as the submitter named it
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0  # its place in the queue goes by this, then by age
    service: str | None = None  # the service that submitted it; `None`: somebody did by Dask
    # the first attempt of this submission: above 1 for a run that is resumed
    first_attempt: int = 1
    submitted_s: float | None = None  # when it was submitted, in unix seconds
    age_s: float | None = None  # seconds since it was submitted
    elapsed_s: float | None = None  # wall time of its training
    recorded: bool = False  # of a job that has ended: nothing more will be written of it

    @property
    def is_final(self) -> bool:
        """Whether the job has ended; a state of a later version is no end."""
        return self.state in FINAL_STATES

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        values = {name: getattr(self, name) for name in _NAMES}
        for name in _OF_TARGETS:  # absent, as before there were more targets than one
            if values[name] is None:
                del values[name]
        return {"version": JSON_VERSION, **finite(values)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "JobStatus":
        """The inverse of `to_json`, of any version and of a scheduler that is not trusted.

        Unknown keys are left out; texts are cut and cleaned; figures that are none are not known.
        What is no job raises an `AttributeError`, `KeyError`, `TypeError` or `ValueError`.
        """
        head = _cleaned(document)
        values = {name: head[name] for name in _OWN if name in head or name in _NEEDED}
        return cls(**values, **figures_in(head))


_OWN = tuple(one.name for one in fields(JobStatus) if one.name not in FIGURES)
_NEEDED = ("job_id", "state")
_NAMES = (*_OWN, *FIGURES)
_COUNTS = {"attempt", "num_ranks", "first_attempt", "priority", "num_steps"}


def _cleaned(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job's JSON values without those that are not known, with texts of bounded lengths."""
    values = {name: value for name, value in document.items() if value is not None}
    for name in _MOST.keys() & values.keys():
        values[name] = storable(_text(values, name), _MOST[name])
    for name in ("job_id", "name", "run_dir", "service"):
        if name in values and len(_text(values, name)) > _MOST_OF_A_NAME:
            raise TypeError(f"{name} is no name")
    for name in _COUNTS & values.keys():
        if type(values[name]) is not int:
            raise TypeError(f"{name} is no whole number")
    for name in ("submitted_s", "age_s", "elapsed_s"):
        if name in values and not is_number(values[name]):
            del values[name]
    return values


def _text(values: Mapping[str, Any], name: str) -> str:
    text = values[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is no text")
    return text


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
