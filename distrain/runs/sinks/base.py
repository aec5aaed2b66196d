"""The interface of sinks, and the values that they receive; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from distrain.jobs.job_view import Entry, Record


@dataclass(frozen=True)
class RunFacts:
    """The run whose entries a sink receives.

    Attributes:
        name: The job's name in its spec.
        tags: The labels in the spec.
        parameters: The flattened spec: names such as `train.optimizer.lr`, and their values.
    """

    job_id: str
    name: str
    run_dir: Path
    tags: Mapping[str, str]
    parameters: Mapping[str, object]


class Stamped(NamedTuple):
    """An entry (a record, the start of an attempt, or a notice), and when it arrived.

    The time is in seconds since 1970.
    """

    entry: Entry
    at_s: float


class Sink(Protocol):
    """Stores a run's entries (records, starts of attempts, notices).

    All methods are called in one thread, which serves only this sink. An error that a method raises
    does not affect the training. The command reports lost entries.
    """

    def open(self, facts: RunFacts) -> None:
        """Prepare the sink. After an error it is called again before the next entries."""

    def write(self, entries: Sequence[Stamped]) -> None:
        """Store entries, in order.

        After an error, the entries are passed once more, together with the next ones. Entries that
        were stored before the error are then passed twice, so make `write` idempotent.
        """

    def close(self, state: str) -> None:
        """Close the sink; `state` is `succeeded`, `failed` or `cancelled`.

        Called only if `open` succeeded.
        """


def scalars(record: Record) -> dict[str, float]:
    """Return the metrics of a record by name, such as `valid/loss`; unknown ones are left out.

    Seconds by phase, `seconds/PHASE`, are means over the ranks.

    >>> scalars(Record("valid", 0, 10, 40, 200, 1.0, None, 0.5, 0.9, 0.7, None))
    ... # doctest: +NORMALIZE_WHITESPACE
    {'valid/rows_total': 200, 'valid/loss': 0.5, 'valid/normalised_entropy': 0.9, 'valid/auc': 0.7}
    """
    names = ("rows_total", "rows_per_s", "loss", "normalised_entropy", "auc", "auc_bound", "lr")
    values = {f"{record.split}/{name}": getattr(record, name) for name in names}
    values[f"{record.split}/stall_mean_pct"] = record.stall_mean_pct
    values[f"{record.split}/stall_max_pct"] = record.stall_max_pct
    values[f"{record.split}/stall_pct"] = record.stall_max_pct  # the earlier name of stall_max_pct
    values |= {f"{record.split}/{name}": value for name, value in (record.own or {}).items()}
    values |= {f"{record.split}/{name}": value for name, value in record.target_metrics().items()}
    for phase, seconds in (record.seconds or {}).items():
        values[f"seconds/{phase}"] = seconds
    return {name: value for name, value in values.items() if value is not None}
