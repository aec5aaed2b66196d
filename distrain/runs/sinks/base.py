"""The interface of sinks, and the values that they get. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from distrain.jobs.view import Entry, Record


@dataclass(frozen=True)
class RunFacts:
    """The run whose entries a sink gets.

    Attributes:
        name: The job's name in its spec.
        tags: The labels in the spec.
        parameters: The spec in one level: `train.optimizer.lr` and its value.
    """

    job_id: str
    name: str
    run_dir: Path
    tags: Mapping[str, str]
    parameters: Mapping[str, object]


class Stamped(NamedTuple):
    """An entry, and its time of arrival in seconds since 1970."""

    entry: Entry
    at_s: float


class Sink(Protocol):
    """Keeps a run's entries somewhere. All methods are called in one thread of the sink's own.

    An error that a method raises never reaches the training: entries are lost, which the command
    reports.
    """

    def open(self, facts: RunFacts) -> None:
        """Get ready. When it raises, it is called again before the next entries."""

    def write(self, entries: Sequence[Stamped]) -> None:
        """Keep some entries, in order. Those that a call raised for do not come again."""

    def close(self, state: str) -> None:
        """End with the job's state: `succeeded`, `failed` or `cancelled`. Only after `open`."""


def scalars(record: Record) -> dict[str, float]:
    """The figures of a record by name; times are those of the mean rank.

    >>> scalars(Record("valid", 0, 10, 40, 200, 1.0, None, 0.5, 0.9, 0.7, None))
    ... # doctest: +NORMALIZE_WHITESPACE
    {'valid/rows_total': 200, 'valid/loss': 0.5, 'valid/normalised_entropy': 0.9, 'valid/auc': 0.7}
    """
    names = ("rows_total", "rows_per_s", "loss", "normalised_entropy", "auc", "auc_bound", "lr")
    values = {f"{record.split}/{name}": getattr(record, name) for name in names}
    values[f"{record.split}/stall_mean_pct"] = record.stall_mean_pct
    values[f"{record.split}/stall_max_pct"] = record.stall_max_pct
    values[f"{record.split}/stall_pct"] = record.stall_max_pct  # its name before there were two
    values |= {f"{record.split}/{name}": value for name, value in (record.own or {}).items()}
    values |= {f"{record.split}/{name}": value for name, value in record.of_targets().items()}
    for phase, seconds in (record.seconds or {}).items():
        values[f"seconds/{phase}"] = seconds
    return {name: value for name, value in values.items() if value is not None}
