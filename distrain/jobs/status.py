"""Parses and bounds the figures and texts of jobs in untrusted JSON; finds a job's id by prefix."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from distrain.errors import InputError
from distrain.formatting import join_names
from distrain.jobs.api_answers import FIGURES, Job

LARGEST = 2**63 - 1  # the largest integer that a database can store

MOST_CHARACTERS = 8000
"""Maximum length of a stored message: each change of a job copies its message into an event."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs


def is_storable(text: str) -> bool:
    r"""Return True if every database and JSON reader accepts a text.

    >>> is_storable("a\tb"), is_storable("a\0b"), is_storable("\udcff")
    (True, False, False)
    """
    return (text.isascii() and "\0" not in text) or _UNSTORABLE.search(text) is None


def storable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Return a text of at most `most` characters that every database and JSON reader accepts.

    Other characters are replaced, and a text that is too long is cut. A job's message may come from
    users' code; a service could never write it to its database otherwise.

    >>> storable("a\0b\udcff"), storable("abcdef", 4)
    ('a\ufffdb\ufffd', 'abc…')
    """
    plain = text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def is_number(value: object) -> bool:
    """Return True if a value is a finite number that a database can store.

    >>> is_number(0.5), is_number(float("nan")), is_number(2**70), is_number(True)
    (True, False, False, False)
    """
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LARGEST <= value <= LARGEST  # false for NaN
    )


def finite(value: Any) -> Any:
    """Return JSON values with `None` for each NaN or infinite number; tuples become lists.

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


_MOST = {"state": 32, "reason": 64, "message": MOST_CHARACTERS, "why_pending": 2000}
"""Maximum characters by field, at most those of the database's column; longer texts are cut."""

_MOST_OF_A_NAME = 4096  # longer ids and paths are refused: if cut, they would name something else

_MOST_TARGETS = 16
"""Maximum number of targets in a job's figures, and of metrics for each target."""
_MOST_OF_A_TARGET = 64


_WHOLE = {name for name, one in FIGURES.items() if one.annotation == int | None}
_OF_TARGETS = ("targets", "valid_targets")


def figures_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures (`FIGURES`) in a job's document of any version.

    Missing and invalid figures, and those that a database cannot store, are left out. Figures that
    are counts become integers.

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
    """Return metrics by target from untrusted JSON values; `None` if no metric is left.

    Undefined metrics (`None`) and invalid values are left out. At most `_MOST_TARGETS` targets, and
    metrics of each, are kept; long names are cut.

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
    """Return the number of ranks on a GPU, given each rank's place as in `JobView.rank_places`.

    >>> gpus_in([{"host": "a", "device": "cuda:0"}, {"host": "a", "device": "cpu"}, None])
    1
    """
    devices = [place.get("device") for place in places if isinstance(place, Mapping)]
    return sum(str(device).startswith("cuda") for device in devices)


def metrics_in(value: object) -> dict[str, dict[str, float | None]]:
    """Return metrics by target as `targets_in` does, with undefined metrics as `None`.

    Targets without metrics are kept, too.

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


def job_of_scheduler(document: Mapping[str, Any]) -> Job:
    """Return the job for a document from a scheduler of any version, which is not trusted.

    Unknown keys are left out. Invalid figures count as unknown. The texts of `_MOST` are cut, and
    characters that cannot be stored are replaced. Raises `AttributeError`, `KeyError`, `TypeError`
    or `ValueError` if the document is not a job, for example because it has no id.
    """
    values = {name: value for name, value in document.items() if value is not None}
    for name in _NEEDED:
        values[name]  # a `KeyError` says which is missing
    for name in _MOST.keys() & values.keys():
        values[name] = storable(_text(values, name), _MOST[name])
    for name in ("id", "name", "run_dir", "service"):
        text = _text(values, name) if name in values else ""
        if len(text) > _MOST_OF_A_NAME or not is_storable(text):
            raise TypeError(f"{name} is not a name")
    head = {name: value for name, value in values.items() if name not in FIGURES}
    head["last_restart"] = restart_in(head.get("last_restart"))
    numbers = (value for name in Job.model_fields if type(value := head.get(name)) is int)
    if any(abs(number) > _LARGEST_OF_A_COLUMN for number in numbers):
        raise ValueError("a number is too large")
    return Job.model_validate({**head, **figures_in(values)}, strict=True)


def restart_in(value: object) -> dict[str, Any] | None:
    """Return a `last_restart` of untrusted JSON values, its texts cut; `None` if it is invalid.

    >>> restart_in({"attempt": 1, "step": 40, "reason": "RankDied", "later": 1})
    {'attempt': 1, 'step': 40, 'reason': 'RankDied', 'message': ''}
    """
    found = dict(_items_of(value))
    numbers = {name: found.get(name) for name in ("attempt", "step")}
    if not all(type(n) is int and 0 <= n <= _LARGEST_OF_A_COLUMN for n in numbers.values()):
        return None
    words = {name: str(found.get(name) or "") for name in ("reason", "message")}
    return numbers | {name: storable(text, _MOST[name]) for name, text in words.items()}


_NEEDED = ("id", "state")
_LARGEST_OF_A_COLUMN = 2**31 - 1


def _text(values: Mapping[str, Any], name: str) -> str:
    text = values[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is not text")
    return text


_MOST_NAMED = 5


def find_id(ids: Sequence[str], word: str) -> str | None:
    """Return the id equal to `word`, or the only id that begins or ends with it, or `None`.

    >>> find_id(["mlp-1", "mlp-12"], "mlp-1"), find_id(["a-1"], "a"), find_id(["a-1"], "1")
    ('mlp-1', 'a-1', 'a-1')

    Raises:
        InputError: Several ids begin or end with `word`, and none is equal to it.
    """
    if word in ids:
        return word
    found = [one for one in ids if word and (one.startswith(word) or one.endswith(word))]
    if len(found) > 1:
        raise InputError(
            f"'{word}' is the beginning or end of several jobs' ids",
            where={"jobs": join_names(found, _MOST_NAMED)},
            hint="Type more of the id.",
        )
    return found[0] if found else None
