"""The progress of a job's attempts, made again from its ranks' kept reports.

The files are read side by side, a stretch at a time: from one step at which every rank has a report
to the next. What is held does not grow with their length. Metrics of few ranks are held at once:
they are added up, in rank order, while the ranks are read one after the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from distrain.jobs.events import EvaluationDone, Event, StepsDone, TrainingStarted
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.view import Entry, Notice, Record
from distrain.metrics.targets import TargetMetrics
from distrain.runs.records.collector import Collector
from distrain.runs.records.kept_reports import kept_files
from distrain.runs.records.merging import join_reports, merge
from distrain.runs.records.report_file import KeptReport, read_reports

FOLDED_RANKS = 16  # ranks whose metrics are added up at once
FOLDED_REPORTS = 8  # reports of one rank in one stretch that are joined at once
OPEN_FILES = 256  # with more ranks than this, a rank's file is closed while others are read

READINGS = 3
"""How often an attempt is read whose ranks go on, and write their files anew in the meantime."""

_NOTHING = TargetMetrics({}).to_json()

Report = TypeVar("Report", StepsDone, EvaluationDone)


def replay_reports(paths: RunPaths) -> Iterator[Entry]:
    """The progress of all attempts, the oldest first; entries of an attempt may come twice."""
    for attempt in paths.attempts():
        files = kept_files(paths, attempt)
        for _ in range(READINGS if files else 0):
            with suppress(_WrittenAnewError):
                yield from _Attempt(attempt, files).entries()
                break
        else:
            if files:
                changed = "its kept reports changed while they were read: some have no record"
                yield Notice(f"attempt {attempt}: {changed}")


class _WrittenAnewError(Exception):
    """A rank joined old reports during the reading: common steps are gone."""


class _Attempt:
    def __init__(self, attempt: int, files: list[Path]):
        self._attempt = attempt
        self._files = files
        self._collector = Collector(limit_bytes=2**16)  # they are taken as they come
        self._seen = 0
        self._rows_per_step = 0.0
        self._step = 0
        self._rows = 0

    def entries(self) -> Iterator[Entry]:
        try:
            yield from self._entries()
        except ValueError as error:
            yield Notice(f"attempt {self._attempt}: its kept reports cannot be read on: {error}")

    def _entries(self) -> Iterator[Entry]:
        firsts = [next(read_reports(path), None) for path in self._files]
        begun = [kept for kept in firsts if kept and isinstance(kept.event, TrainingStarted)]
        num_ranks = max((kept.num_ranks for kept in begun), default=0) or len(self._files)
        if not begun:
            return
        if len(begun) < num_ranks:
            yield Notice(
                f"attempt {self._attempt}: reports of {len(begun)} of {num_ranks} ranks were kept: "
                "its records cannot be made again"
            )
            return
        self._collector.begin_attempt(self._attempt, num_ranks)
        for kept in begun:
            assert isinstance(kept.event, TrainingStarted)
            yield from self._add(kept.event)
            self._begin(kept.event)
        yield from self._stretches()

    def _begin(self, event: TrainingStarted) -> None:
        self._step, self._rows = event.first_step, event.rows_before
        self._rows_per_step = event.total_rows / max(1, event.num_steps)

    def _stretches(self) -> Iterator[Entry]:
        trained, scored = _common_steps(self._files)
        keep_open = len(self._files) <= OPEN_FILES
        with ExitStack() as stack:
            cursors = [_Cursor(path, keep_open) for path in self._files]
            for cursor in cursors:
                stack.callback(cursor.close)
            for step in [*sorted(trained), None]:
                yield from self._stretch(cursors, step, scored)

    def _stretch(
        self, cursors: "list[_Cursor]", step: int | None, scored: "set[_Scored]"
    ) -> Iterator[Entry]:
        """The entries after the last common step up to this one; `None`: up to the end."""
        steps = _Fold[StepsDone]()
        evaluations: dict[_Scored, _Fold[EvaluationDone]] = {}
        whole, count = True, 1
        for cursor in cursors:
            reports: list[StepsDone] = []
            for kept in cursor.until(step):
                if isinstance(kept.event, StepsDone):
                    reports.append(kept.event)
                    if len(reports) == FOLDED_REPORTS:
                        reports = [join_reports(reports)]
                elif isinstance(kept.event, EvaluationDone) and _scored(kept.event) in scored:
                    evaluations.setdefault(_scored(kept.event), _Fold()).add(kept.event)
            if step is not None:
                if not cursor.is_complete:
                    raise _WrittenAnewError
                steps.add(join_reports(reports))
                whole, count = whole and cursor.is_whole, max(count, cursor.count)
        begin, rows_before = self._step, self._rows
        train: list[Entry] = []
        if step is not None:
            train = list(self._train(steps, step, whole, count))
        for (at, _), fold in sorted(evaluations.items()):
            share = 0.0 if step is None or step == begin else (at - begin) / (step - begin)
            rows = rows_before + round(share * (self._rows - rows_before))
            for entry in (e for event in fold.events() for e in self._add(event)):
                yield replace(entry, rows_total=rows) if isinstance(entry, Record) else entry
        yield from train

    def _train(
        self, steps: "_Fold[StepsDone]", step: int, whole: bool, count: int
    ) -> Iterator[Entry]:
        begin = self._step
        entries = [entry for event in steps.events() for entry in self._add(event)]
        self._step = step
        if whole:
            self._rows = self._collector.rows_total
            for entry in entries:
                yield replace(entry, reports=count) if isinstance(entry, Record) else entry
            return
        # Some rank's rows are not among those that were just added up.
        self._rows += round((step - begin) * self._rows_per_step)
        self._collector.rows_total = self._rows
        yield Notice(
            f"attempt {self._attempt}: steps {begin + 1} to {step} have no record: "
            "a rank's report of them was not kept"
        )

    def _add(self, event: Event) -> list[Entry]:
        self._collector.add(event)
        entries = self._collector.entries
        fresh, self._seen = entries.since(self._seen), len(entries)
        return fresh


_Scored = tuple[int, str]
"""What was scored: the step, and the window's name; "" for the validation rows."""


def _scored(event: EvaluationDone) -> _Scored:
    return event.step, event.window


def _common_steps(files: Iterable[Path]) -> tuple[set[int], set[_Scored]]:
    """The steps at which a report of every rank ends, and what every rank scored."""
    common: tuple[set[int], set[_Scored]] | None = None
    for path in files:
        steps: tuple[set[int], set[_Scored]] = set(), set()
        for kept in read_reports(path):
            if isinstance(kept.event, StepsDone):
                steps[0].add(kept.event.step)
            elif isinstance(kept.event, EvaluationDone):
                steps[1].add(_scored(kept.event))
        common = steps if common is None else (common[0] & steps[0], common[1] & steps[1])
    return common or (set(), set())


class _Cursor:
    def __init__(self, path: Path, keep_open: bool):
        self._path = path
        self._keep_open = keep_open
        self._end = 0
        self._reports: Iterator[KeptReport] | None = None
        self._next = 0
        self.is_complete = True  # whether the last stretch ends where it was to end
        self.is_whole = True  # whether no report is missing in the last stretch
        self.count = 0  # how many reports the last stretch holds

    def until(self, step: int | None) -> Iterator[KeptReport]:
        """The reports after the last stretch, up to that of a step; `None`: all that are left."""
        self.is_complete, self.is_whole, self.count = False, True, 0
        if self._reports is None:
            self._reports = read_reports(self._path, self._end)
        for kept in self._reports:
            self._end = kept.end
            if isinstance(kept.event, StepsDone):
                self.is_whole &= kept.first == self._next
                self._next = kept.first + kept.count
                self.count += kept.count
            yield kept
            if isinstance(kept.event, StepsDone) and kept.event.step == step:
                self.is_complete = True
                break
        if not self._keep_open:
            self.close()

    def close(self) -> None:
        self._reports = None


@dataclass
class _Fold(Generic[Report]):
    """Reports of ranks of which few hold metrics; the last one gets all of them."""

    _reports: list[Report] = field(default_factory=list)
    _states: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self._states.append(report.metrics)
        self._reports.append(replace(report, metrics=_NOTHING))
        if len(self._states) > FOLDED_RANKS:
            self._states = [merge(self._states).to_json()]

    def events(self) -> list[Report]:
        """The ranks' reports, whose metrics are together those of all."""
        total = merge(self._states).to_json() if len(self._states) > 1 else self._states[0]
        self._reports[-1] = replace(self._reports[-1], metrics=total)
        return self._reports
