"""What a sink is told, and what it does with it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from distrain.coordinator.view import Entry, Record


@dataclass(frozen=True)
class RunFacts:
    """Whose entries a sink gets.

    Attributes:
        job_id: The job.
        name: Its name, from its spec.
        run_dir: Its files.
        tags: Its labels, from its spec.
        parameters: Its spec in one level: `train.optimizer.lr` and its value.
    """

    job_id: str
    name: str
    run_dir: Path
    tags: Mapping[str, str]
    parameters: Mapping[str, object]


class Stamped(NamedTuple):
    """An entry and when the command got it, in seconds since 1970."""

    entry: Entry
    at_s: float


class Sink(Protocol):
    """Keeps a run's entries somewhere. All is called in one thread, which is the sink's own.

    What raises here never reaches the training: entries are lost, and the command says so.
    """

    def open(self, facts: RunFacts) -> None:
        """Get ready. When it raises, it is called again before the next entries."""

    def write(self, entries: Sequence[Stamped]) -> None:
        """Keep some entries, in order. Those that a call raised for do not come again."""

    def close(self, state: str) -> None:
        """The job is at its end: `succeeded`, `failed` or `cancelled`. Only after `open`."""


def scalars(record: Record) -> dict[str, float]:
    """The figures of a record by name; times are those of the mean rank.

    >>> scalars(Record("valid", 0, 10, 40, 200, 1.0, None, 0.5, 0.9, 0.7, None))
    ... # doctest: +NORMALIZE_WHITESPACE
    {'valid/rows_total': 200, 'valid/loss': 0.5, 'valid/normalised_entropy': 0.9, 'valid/auc': 0.7}
    """
    names = ("rows_total", "rows_per_s", "loss", "normalised_entropy", "auc", "auc_bound", "lr")
    values = {f"{record.split}/{name}": getattr(record, name) for name in names}
    values[f"{record.split}/stall_pct"] = record.stall_max_pct
    for phase, seconds in (record.seconds or {}).items():
        values[f"seconds/{phase}"] = seconds
    return {name: value for name, value in values.items() if value is not None}


def flat(document: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A spec's document in one level.

    >>> flat({"name": "a", "train": {"optimizer": {"lr": 0.1}}})
    {'name': 'a', 'train.optimizer.lr': 0.1}
    """
    values: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values
