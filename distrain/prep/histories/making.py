"""Sorts the events of all parts on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from distrain.errors import DataError, InputError
from distrain.prep.features.columns import KEYS_OF_HISTORY, TIMES_OF_HISTORY
from distrain.prep.histories.ordering import Spill, join_column, order_ranges, spill_events
from distrain.prep.histories.reading import EventLog, PartHistory, Values
from distrain.prep.lookups.index import Lookups
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.history import History
from distrain.prep.parts import Part
from distrain.prep.progress import PhaseCounter, ProgressCallback
from distrain.prep.sorted_runs import Cut
from distrain.prep.workers import TaskRunner
from distrain.storage.folder import open_folder

_MOST_TASKS = 1024


@dataclass(frozen=True)
class _Maker:
    history: History
    runner: TaskRunner
    memory: MemoryPlan
    folder: str

    def log(self, spills: Sequence[Spill], silent: int, name: str) -> EventLog:
        """Sort the events of all spills on workers.

        Returns the files with events, and with the rows' spans among them. A spill has the sorted
        events of one part. The rows of the first `silent` spills need no histories. `name` is the
        files' prefix.
        """
        _check_keys(self.history, spills)
        paths = tuple(spill.path for spill in spills)
        bounds = [None, *self._cuts(spills), None]
        # A task sorts several consecutive ranges: each part reads the files of all tasks.
        step = -(-(len(bounds) - 1) // _MOST_TASKS)
        tasks = [
            (
                paths,
                silent,
                bounds[i : i + step + 1],
                self.history.keep,
                f"{self.folder}/{name}-{i}",
            )
            for i in range(0, len(bounds) - 1, step)
        ]
        ranges = self.runner.run("order", order_ranges, tasks)
        events = [one.events for one in ranges]
        of = [(None if name == self.history.order else name) for name in self.history.of]
        files = [f"{self.folder}/{name}-{number:04d}.values" for number in range(len(of))]
        joins = [(events, column, file) for column, file in zip(of, files, strict=True)]
        dtypes = self.runner.run("join", join_column, joins)
        names = self.history.names.values()
        values = zip(names, files, dtypes, [column is None for column in of], strict=True)
        return EventLog(tuple(Values(*one) for one in values), tuple(one.spans for one in ranges))

    def _cuts(self, spills: Sequence[Spill]) -> list[Cut]:
        """Return cuts, ascending, that divide the events into ranges of about `piece_bytes`."""
        num_events = sum(spill.num_events for spill in spills)
        of_event = sum(spill.size_bytes for spill in spills) / max(num_events, 1)
        num_ranges = -(-num_events * of_event // self.memory.piece_bytes)
        samples = sorted(sample for spill in spills for sample in spill.samples)
        step = max(1, int(len(samples) // max(num_ranges, 1)))
        return sorted({*samples[step::step]})


def _check_keys(history: History, spills: Sequence[Spill]) -> None:
    kinds = {spill.key_type for spill in spills if spill.num_events}
    if len(kinds) > 1:
        raise DataError(
            "the keys of histories are integers in some files, and texts in others",
            where={"column": history.by},
            hint="Write the files again with one of the two types. Note that pandas turns integers "
            "with missing values into floats, whose keys are texts.",
        )


def check_log(history: History | None, log: Sequence[str] | None, *, is_fitted: bool) -> None:
    """Raise an `InputError` if a log is given without a history, or a required log is missing.

    `log` names the files of earlier events; `()` means no earlier events. A saved workflow
    (`is_fitted`) with a history requires a log.
    """
    if history is None and log is not None:
        raise InputError(
            "a log is only for histories, but the workflow has none",
            hint="Leave --earlier-rows out, or add a history to the features document.",
        )
    if history is not None and is_fitted and log is None:
        raise InputError(
            "histories need the events that came before these rows",
            where={"by": history.by, "order": history.order},
            hint="Name files of earlier rows with --earlier-rows FILE, which may be repeated; "
            "--earlier-rows none means no earlier events.",
        )


def make_histories(
    history: History | None,
    parts: tuple[Sequence[Part], Sequence[Part], Sequence[Part]],
    workflow: tuple[str, Lookups],
    cluster: tuple[TaskRunner, MemoryPlan, str],
    most_bytes: int,
    on_progress: ProgressCallback,
) -> Iterator[PartHistory | None]:
    """Yield the history of each training part, and then of each validation part.

    Yields `None` without end if `history` is `None`. A row's history has only events before its
    time. For training rows, they are from the parts with earlier events and the training parts; for
    validation rows, from all parts.

    Args:
        parts: The parts with earlier events, the training parts, and the validation parts.
        workflow: The folder of the fitted workflow, and its lookups.
        cluster: The task runner, the memory plan, and a folder that all workers see.
        most_bytes: Maximum memory of the lists of one row group while they are built.
    """
    if history is None:
        return repeat(None)
    names = (KEYS_OF_HISTORY, TIMES_OF_HISTORY)
    before, train, valid = parts
    runner, memory, staging = cluster
    folder = f"{staging}/histories"
    open_folder(folder).make()
    everything = [*before, *train, *valid]
    counter = PhaseCounter("history", len(everything), on_progress)
    tasks = [
        (part, *workflow, names, f"{folder}/part-{number:05d}.arrow")
        for number, part in enumerate(everything)
    ]
    rows = [part.num_rows for part in everything]
    spills = runner.run("history", spill_events, tasks, lambda place, _: counter.add(rows[place]))
    maker = _Maker(history, runner, memory, folder)
    num_training = len(before) + len(train)
    histories = []
    for name, of, silent in (
        ("train", spills[:num_training], len(before)),
        ("valid", spills, num_training),
    ):
        if num_readers := len(of) - silent:
            log = maker.log(of, silent, name)
            histories += [PartHistory(log, n, names[1], most_bytes) for n in range(num_readers)]
    return iter(histories)
