"""The history of a job in bounded memory: its curves, ranks and time line; no I/O."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from distrain.formatting import MAIN_METRICS, byte_size, main_metrics, number
from distrain.jobs.events import CheckpointSaved, Event, Heartbeat, StepsDone, TrainingStarted
from distrain.jobs.job_view import AttemptStarted, Entry, Notice, Record
from distrain.jobs.states import JobState
from distrain.jobs.status import metrics_in, targets_in
from distrain.runs.records.series import Series, SeriesColumn
from distrain.scheduler.history.ranks import RankState, StepTimes, Window

KEPT_VALIDATIONS = 4096
"""Number of validations that are kept, because the saved model may be that of any of them."""

KEPT_MOMENTS = 100
"""Maximum moments of each kind on the time line; checkpoints may come every few seconds."""


_COUNTS = (
    SeriesColumn("step", whole=True),
    SeriesColumn("elapsed_s"),
    SeriesColumn("rows_total", whole=True),
)
_SCORES = (SeriesColumn("loss"), SeriesColumn("auc"), SeriesColumn("auc_bound"))
TRAIN = (
    *_COUNTS,
    SeriesColumn("rows_per_s"),
    *_SCORES,
    SeriesColumn("stall_mean_pct"),
    SeriesColumn("stall_max_pct"),
    SeriesColumn("lr"),
)
VALID = (*_COUNTS, *_SCORES)


@dataclass(frozen=True)
class Moment:
    """An entry of a job's time line, such as a restart or a checkpoint."""

    at_s: float  # unix time
    kind: str  # `state`, `checkpoint`, `validated`, `notice`, or `restart`
    attempt: int
    step: int | None  # training steps at this time; `None` if unknown
    text: str


class JobHistory:
    """The history of one job since its submission, at `submitted_s` in unix time.

    The series `train` and `valid` have the columns `TRAIN` and `VALID`, and a column
    `TARGET.METRIC` for each main metric of each target except the first binary one.
    """

    def __init__(self, submitted_s: float):
        self.submitted_s = submitted_s
        self.attempt = 0
        self.train, self.valid = Series(TRAIN), Series(VALID)
        self.now: dict[int, RankState] = {}  # each rank's last reports in this attempt
        self.last_train: Record | None = None
        self.last_valid: Record | None = None
        self._validations: OrderedDict[int, Record] = OrderedDict()  # by step, the newest ones
        self.step = 0  # steps taken; steps that a restart repeats are counted once
        self.rows_per_s: float | None = None  # of the last record; `None` while it takes no steps
        self._timed_rows, self._timed_s = 0, 0.0
        self.state_since_s = submitted_s  # when the state last changed, in unix time
        self.num_points = 0  # number of points ever added to the series
        self.rows_trained = 0  # rows of all records, including steps that were repeated
        self.phase_seconds: defaultdict[str, float] = defaultdict(float)  # summed over the ranks
        self.step_times = StepTimes()  # times of the ranks' steps, in all attempts
        self.checkpoint_bytes: int | None = None  # of the last checkpoint, if there is one
        self.checkpoint_s: float | None = None  # when the last checkpoint was complete, unix time
        self.service: str | None = None  # the service that submitted it; `None`: a client over Dask
        self.page: str | None = None  # the URL of its page in the service
        self.num_entries = 0  # entries of the job's progress that were added
        self.revision = 0  # the revision of its last change (`http/changes.py`)
        # at that revision: a value that changes with anything but reports, and `num_reports`
        self.seen: tuple[object, int] = (None, 0)
        self.num_reports = 0  # the ranks' reports so far, without heartbeats
        self._first_step = 0
        self._moments: dict[str, deque[Moment]] = {}
        # A job with the same id may be submitted again; cursors of the old one must not fit.
        self._first_generation = int(submitted_s * 1000)

    @property
    def generation(self) -> int:
        """A number that grows whenever points of the curves are replaced or removed.

        It is part of a reader's cursor. If it has changed since, the reader needs all points again.
        """
        return self._first_generation + self.train.generation + self.valid.generation

    @property
    def moments(self) -> list[Moment]:
        """The time line: the last `KEPT_MOMENTS` moments of each kind, the oldest first."""
        return sorted((m for kind in self._moments.values() for m in kind), key=lambda m: m.at_s)

    @property
    def progressed_s(self) -> float:
        """The unix time of a rank's last progress or, if later, of the last change of state."""
        return max((self.state_since_s, *(rank.progressed_s for rank in self.now.values())))

    @property
    def mean_rows_per_s(self) -> float | None:
        """The mean rows per second of training, including repeated steps; `None` if unknown."""
        return self._timed_rows / self._timed_s if self._timed_s else None

    def valid_of(self, model_step: int | None) -> Record | None:
        """Return the validation after `model_step` steps, or else the last validation.

        `None` if there is no validation. `model_step` may be `None` (unknown).
        """
        return (
            self.last_valid
            if model_step is None
            else self._validations.get(model_step, self.last_valid)
        )

    def observe(self, attempt: int, event: Event, now_s: float) -> None:
        """Process an event of a rank of attempt `attempt`, which arrived at unix time `now_s`.

        An event of another attempt than the last one begins a new attempt: all ranks are forgotten.
        """
        if attempt != self.attempt:
            self.attempt, self.now = attempt, {}
        self.num_reports += not isinstance(event, Heartbeat)
        rank = self.now.get(event.rank)
        if rank is None:
            rank = self.now[event.rank] = RankState(step=self._first_step)
        match event:
            case Heartbeat():
                rank.observe(event, now_s)
            case TrainingStarted():
                self._first_step = rank.step = event.first_step
                rank.observe(event, now_s)
            case StepsDone():
                window = rank.take_window(event, now_s)
                for phase, seconds in event.seconds.items():
                    self.phase_seconds[phase] += seconds
                if window is not None:
                    self._add_window(event, window)
            case CheckpointSaved():
                rank.observe(event, now_s)
                self.checkpoint_bytes, self.checkpoint_s = event.size_bytes, now_s
                text = f"checkpoint of step {event.step}, {byte_size(event.size_bytes)}"
                self._add_moment(now_s, "checkpoint", event.step, text)
            case _:
                rank.observe(event, now_s)

    def take(self, entries: Iterable[Entry], now_s: float) -> None:
        """Add entries of the job's progress to the curves and the time line.

        Entries are records (metrics), starts of attempts, and notices.
        """
        for entry in entries:
            match entry:
                case AttemptStarted():
                    self._resume(entry)
                case Record(split="train"):
                    self._add_train(entry)
                case Record(split="valid"):
                    self._add_valid(entry, now_s)
                case Notice():
                    self._add_moment(now_s, "notice", None, entry.text)

    def move(self, attempt: int, state: JobState, now_s: float, why: str = "") -> None:
        """Note that the job is in state `state` since unix time `now_s`.

        `why` is part of the note. A state other than `running` clears the rate, and a final state
        completes the series.
        """
        text = f"{state}: {why}" if why else str(state)
        self._add_moment(now_s, "state", self.step or None, text, attempt)
        self.state_since_s = now_s
        if state is not JobState.RUNNING:
            self.rows_per_s = None
        if state.is_final:
            self._end()

    def _end(self) -> None:
        self.num_points += 1
        self.train.finish(self.num_points)
        self.valid.finish(self.num_points)

    def _resume(self, entry: AttemptStarted) -> None:
        """Remove the points and validations of the steps that a new attempt will repeat.

        These are the steps after the one at which it starts.
        """
        self.step, self.rows_per_s = entry.step, None
        for series in (self.train, self.valid):
            series.drop_after(entry.step)
        for name in ("last_train", "last_valid"):
            record = getattr(self, name)
            if record is not None and record.step > entry.step:
                setattr(self, name, None)
        for step in [step for step in self._validations if step > entry.step]:
            del self._validations[step]

    def _add_train(self, record: Record) -> None:
        self.rows_trained += record.rows
        if self.train.last is not None and record.step <= self.train.last:
            return  # an earlier attempt has reported these steps already
        self.train = _with_targets(self.train, TRAIN, record)
        self.last_train, self.step, self.rows_per_s = record, record.step, record.rows_per_s
        if record.rows_per_s:
            self._timed_rows += record.rows
            self._timed_s += record.rows / record.rows_per_s
        self._add(self.train, record)

    def _add_valid(self, record: Record, now_s: float) -> None:
        if self.valid.last is not None and record.step <= self.valid.last:
            return
        self.valid = _with_targets(self.valid, VALID, record)
        self.last_valid = record
        self._validations[record.step] = replace(record, reliability=None)
        if len(self._validations) > KEPT_VALIDATIONS:
            self._validations.popitem(last=False)
        self._add(self.valid, record)
        auc = "unknown" if record.auc is None else number(record.auc, 4)
        more = [" ".join(one) for one in main_metrics(targets_in(record.targets))]
        shown = more if record.loss is None and more else [f"AUC {auc}", *more]
        text = f"{', '.join(shown)} of {record.rows} rows"
        self._add_moment(now_s, "validated", record.step, text)

    def _add_window(self, event: StepsDone, window: Window) -> None:
        if len(event.step_counts) == len(self.step_times.counts):
            self.step_times.add(event.step_counts, window.wall_s)
        else:
            self.step_times.add_mean(window.wall_s / window.steps, window.steps)

    def _add(self, series: Series, record: Record) -> None:
        self.num_points += 1
        series.add(_point(record, series.columns), self.num_points)

    def _add_moment(
        self, now_s: float, kind: str, step: int | None, text: str, attempt: int | None = None
    ) -> None:
        moment = Moment(now_s, kind, self.attempt if attempt is None else attempt, step, text)
        self._moments.setdefault(kind, deque(maxlen=KEPT_MOMENTS)).append(moment)

    def slowest(self) -> dict[str, Any] | None:
        """Return the slowest rank as `rank`, its `step_time_s`, and the `median_step_time_s`.

        Step times are those of the ranks' last reports, without the phase `exchange`. `None` if
        fewer than two ranks have reported a step time.
        """
        times = {rank: now.step_time_s for rank, now in self.now.items()}
        known = {rank: s for rank, s in times.items() if s is not None}
        if len(known) < 2:
            return None
        rank = max(known, key=lambda r: known[r])
        middle = median(known.values())
        return {"rank": rank, "step_time_s": known[rank], "median_step_time_s": middle}


def _point(record: Record, columns: Iterable[SeriesColumn]) -> dict[str, float | None]:
    of_targets = _main_metrics_of(record)
    return {
        column.name: of_targets.get(column.name, getattr(record, column.name, None))
        for column in columns
    }


def _with_targets(series: Series, columns: Sequence[SeriesColumn], record: Record) -> Series:
    """Return the series, with a column for each main metric of a record's `targets`.

    Unless the series is empty, it is returned unchanged. `columns` are the columns that it has in
    any case.
    """
    names = _main_metrics_of(record)
    if not names or series.last is not None or len(series.columns) > len(columns):
        return series
    return Series((*columns, *(SeriesColumn(name) for name in names)))


def _main_metrics_of(record: Record) -> dict[str, float | None]:
    """Return the main metrics of all targets except the first binary one, by `TARGET.METRIC`."""
    return {
        f"{target}.{metric}": metrics[metric]
        for target, metrics in metrics_in(record.targets).items()
        for metric in MAIN_METRICS
        if metric in metrics
    }
