"""Checks that a run trained each row of each epoch exactly once, however often it was restarted.

Ranks record a hash of every row that they train. The check reads the table again, in file order and
without shuffling, hashes its rows, and compares these hashes with the recorded ones as multisets.
If the table is split into windows, the rows of each window's steps are compared with the rows of
that window. A step with rows of two windows is a problem, so a passed check also shows that all
rows of a window were trained before those of the next.

Only the steps that led to the weights count: an attempt that resumed from a checkpoint of `f` steps
replaces all steps of earlier attempts from number `f` on.

The record of a rank is a file of hashes, step by step:

    8 bytes     "DTROWS01"
    int64       steps done before this attempt began
    then for each step: int64 epoch, step (from 0, over the job), count; count hashes, int64 each

All numbers are little-endian. A process that is killed may leave half a step at the end.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from distrain.errors import DataError, OutputError
from distrain.jobs.run_paths import RunPaths, check_run_dir, of_all_ranks
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import load_spec
from distrain.loader.batch import Batch, Ragged
from distrain.loader.dataset import Dataset
from distrain.loader.loader import Loader
from distrain.loader.partition.table import Table
from distrain.train.data.inputs import check_inputs
from distrain.train.data.job_extent import JobSpan
from distrain.train.data.job_tables import Inputs

_MAGIC = b"DTROWS01"
_INT = np.dtype("<i8")
_NUMBERS_PER_STEP = 3

Hashes = npt.NDArray[np.int64]


class TrainedRows(NamedTuple):
    """The hashes of the rows that one rank trained on in one step, `[rows]`, int64.

    Epoch and step count from 0; the step counts over the whole job.
    """

    epoch: int
    step: int
    hashes: Hashes


class AuditLog:
    """Writes the record of the rows that a rank trains (the format is in the module's docstring).

    Its methods raise `OutputError` if the file cannot be written.
    """

    def __init__(self, file: BinaryIO, path: Path):
        self._file = file
        self._path = path

    @classmethod
    def begin(cls, path: Path, first_step: int) -> "AuditLog":
        """Create or replace the file of an attempt that begins after `first_step` steps."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = cls(path.open("wb", buffering=2**20), path)
        except OSError as error:
            raise _cannot_write(path, error) from None
        log._write(_MAGIC, np.array([first_step], _INT).tobytes())
        log.flush()
        return log

    def add(self, epoch: int, step: int, batch: Batch) -> None:
        """Append the hashes of the rows of a step; `step` counts from 0 over the whole job."""
        hashes = row_hashes(batch).cpu().numpy().astype(_INT, copy=False)
        head = np.array([epoch, step, len(hashes)], _INT)
        self._write(head.tobytes(), hashes.tobytes())

    def _write(self, *parts: bytes) -> None:
        try:
            for part in parts:
                self._file.write(part)
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def flush(self) -> None:
        """Pass everything to the operating system, which keeps it if this process dies."""
        try:
            self._file.flush()
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()


def read_audit(path: Path) -> tuple[int, Iterator[TrainedRows]]:
    """Return the number of steps done before a rank's record begins, and its complete steps.

    Raises `DataError` if the file cannot be read or is not a record of rows.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error}", where={"file": path}) from None
    begin = len(_MAGIC) + _INT.itemsize
    if content[: len(_MAGIC)] != _MAGIC or len(content) < begin:
        raise DataError("not a file of row hashes", where={"file": path})
    numbers = np.frombuffer(content, _INT, (len(content) - len(_MAGIC)) // 8, len(_MAGIC))
    return int(numbers[0]), _steps_in(numbers[1:])


def _steps_in(numbers: Hashes) -> Iterator[TrainedRows]:
    place = 0
    while place + _NUMBERS_PER_STEP <= len(numbers):
        epoch, step, count = (int(n) for n in numbers[place : place + _NUMBERS_PER_STEP])
        place += _NUMBERS_PER_STEP
        if count < 0 or place + count > len(numbers):
            return
        yield TrainedRows(epoch, step, numbers[place : place + count])
        place += count


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"could not write row hashes: {error}", where={"file": path})


# Steele, Lea, Flood 2014 (SplitMix64), as int64, where torch's products wrap around.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def row_hashes(batch: Batch) -> Tensor:
    """Return a hash of each row's ids, numbers, labels and lists, `[rows]`, int64.

    The result is on the batch's device. The hash depends on the order of the columns, except that
    list columns are sorted by name. Row weights are not hashed.

    >>> ids = torch.tensor([[1, 2], [2, 1], [1, 2]], dtype=torch.int32)
    >>> batch = Batch(ids, torch.zeros(3, 0), torch.ones(3), ("a", "b"), ())
    >>> first, second, third = row_hashes(batch).tolist()
    >>> first == third, first == second
    (True, False)
    """
    hashes = torch.zeros(batch.num_rows, dtype=torch.int64, device=batch.categorical.device)
    labels = batch.label[:, None] if batch.labels is None and batch.label is not None else None
    for part in (batch.categorical, batch.continuous, batch.labels, labels):
        for column in () if part is None else part.unbind(1):
            hashes = _mixed(hashes + _STEP + _bits(column))
    for name in sorted(batch.lists):
        hashes = _mixed(hashes + _STEP + _of_lists(batch.lists[name]))
    return hashes


def _of_lists(lists: Ragged) -> Tensor:
    """Return a hash of each row's list, `[rows]`, int64, from all values and their positions."""
    lengths = lists.lengths.long()
    starts = torch.repeat_interleave(lists.offsets[:-1].long(), lengths)
    places = torch.arange(len(lists.values), device=lists.values.device) - starts
    each = _mixed(_bits(lists.values) + (places + 1) * _STEP)
    # Sums wrap around, so differences of running sums are exact.
    running = torch.cat([each.new_zeros(1), each.cumsum(0)])
    bounds = lists.offsets.long()
    return running[bounds[1:]] - running[bounds[:-1]] + lengths


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32).long()


def _mixed(values: Tensor) -> Tensor:
    values = (values ^ _shifted(values, 30)) * _FACTORS[0]
    values = (values ^ _shifted(values, 27)) * _FACTORS[1]
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, count: int) -> Tensor:
    """Return values shifted right, filled with zeros; torch's own shift fills with the sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)


_BATCH_ROWS = 2**16
_MOST_NAMED = 10


@dataclass(frozen=True)
class EpochAudit:
    """The result of the check for an epoch or, if the table has windows, a window of an epoch."""

    epoch: int  # from 0
    steps: int  # the number of recorded steps
    rows: int  # the number of recorded rows
    whole: bool  # whether the run has trained to the last step of the epoch, or of the window
    problems: tuple[str, ...]  # rows lost, trained twice, not in the table, or of another window
    window: str | None = None  # the window's name; `None` if the table is not split


@dataclass(frozen=True)
class RunAudit:
    """The result of `audit_run`: whether each row was trained exactly once per epoch."""

    attempts: int  # the number of attempts with records
    table_rows: int  # the rows of the training data
    steps: int  # the number of recorded steps, each counted once
    num_steps: int  # the steps of the whole job
    epochs: tuple[EpochAudit, ...]  # by epoch, then by window

    @property
    def proved(self) -> bool:
        """Whether at least one epoch was checked, and no problem was found."""
        return bool(self.epochs) and not any(epoch.problems for epoch in self.epochs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"proved": self.proved}


def audit_run(run: Path) -> RunAudit:
    """Compare a run's recorded row hashes with the hashes of all rows of its training data.

    The result has, for each epoch and window, the problems found, such as rows that were not
    trained, or too often.

    Raises `DataError` if the run recorded no hashes, and `InputError` or `Unavailable` if its
    folder, spec or data cannot be read.
    """
    paths = RunPaths(run)
    check_run_dir(paths)
    history = counted_steps(paths)
    spec = load_spec(paths.spec)
    inputs = check_inputs(spec)
    spec = spec.for_rows(inputs.train.num_rows)
    loader = _loader(spec, inputs, drop_last=spec.data.drop_last)
    span = JobSpan.of(spec, loader)
    steps: dict[int, list[TrainedRows]] = defaultdict(list)
    for rows in history:
        steps[rows.step].append(rows)
    last = max(steps, default=-1)
    epochs: list[EpochAudit] = []
    table_rows = 0
    for window, dataset in enumerate(loader.dataset.windows):
        table = table_hashes(spec, inputs, dataset.table)
        table_rows += len(table)
        epochs += _audit_window(window, steps, last, span, table, dataset.table)
    return RunAudit(
        attempts=len(_files(paths)),
        table_rows=table_rows,
        steps=len(steps),
        num_steps=span.num_steps,
        epochs=tuple(sorted(epochs, key=lambda one: one.epoch)),
    )


def counted_steps(paths: RunPaths) -> list[TrainedRows]:
    """Return the records of all ranks for the steps that led to the weights, latest attempt first.

    Raises `DataError` if the run recorded no hashes.
    """
    attempts = {
        attempt: [read_audit(path) for path in files] for attempt, files in _files(paths).items()
    }
    if not attempts:
        raise DataError(
            "the run left no row hashes",
            where={"folder": paths.audits},
            hint="Train with `--set train.audit=true`.",
        )
    counted: list[TrainedRows] = []
    replaced_from: float = np.inf
    for attempt in sorted(attempts, reverse=True):
        files = attempts[attempt]
        counted += [rows for _, steps in files for rows in steps if rows.step < replaced_from]
        replaced_from = min(replaced_from, *(first_step for first_step, _ in files))
    return counted


def table_hashes(spec: JobSpec, inputs: Inputs, table: Table) -> Hashes:
    """Return the hash of every row of `table`, `[rows]`, in file order.

    `table` is the training data, or a window of it.
    """
    one = replace(inputs, train=replace(table, windows=None))
    with _loader(spec, one, drop_last=False, batch_rows=_BATCH_ROWS) as loader:
        return np.concatenate([row_hashes(batch).numpy() for batch in loader])


def _loader(
    spec: JobSpec, inputs: Inputs, *, drop_last: bool, batch_rows: int | None = None
) -> Loader:
    dataset = Dataset.of(inputs.train, inputs.schema, spec.data)
    rows = spec.train.batch_rows if batch_rows is None else batch_rows
    return Loader(dataset, batch_size=rows, lanes=1, shuffle="none", drop_last=drop_last)


def _files(paths: RunPaths) -> dict[int, list[Path]]:
    found = {n: list(of_all_ranks(paths.audit(0, n)).values()) for n in paths.attempts()}
    return {attempt: files for attempt, files in found.items() if files}


def _audit_window(
    window: int,
    steps: Mapping[int, list[TrainedRows]],
    last: int,
    span: JobSpan,
    table: Hashes,
    origin: Table,
) -> Iterator[EpochAudit]:
    """Yield the result of the check of one window, for each epoch that reached it.

    `steps` are the ranks' records by step, and `last` is the last recorded step. `table` has the
    hashes of the window's rows in `origin`, the window's table.
    """
    first, end = span.epoch.span(window)
    for epoch in range(span.epoch_after(last + 1) + 1):
        begin = epoch * span.steps_per_epoch
        places = range(begin + first, begin + end)
        if last >= places.start:
            yield _audit_steps(epoch, window, places, steps, last, span, table, origin)


def _audit_steps(
    epoch: int,
    window: int,
    places: range,
    counted: Mapping[int, list[TrainedRows]],
    last: int,
    span: JobSpan,
    table: Hashes,
    origin: Table,
) -> EpochAudit:
    steps = {step: counted[step] for step in places if step in counted}
    # The last epoch may have ended early; all others have all their steps.
    first, end = places.start, places.stop
    stop = min(end, last + 1)
    trained = [rows.hashes for of_step in steps.values() for rows in of_step]
    hashes = np.concatenate(trained) if trained else np.empty(0, np.int64)
    problems = _named(_wrong_sizes(range(first, stop), steps, span), "more such steps")
    lost, extra = _difference(table, hashes)
    if stop == end and span.rows_in(end) - span.rows_in(first) == len(table):
        named = (f"never trained: {_place(row, origin)}" for row in _rows_of(lost, table))
        problems += _named(named, "more rows were never trained")
    named = (f"{_why(value, table, origin)}, in {_when(value, steps)}" for value in extra.tolist())
    problems += list(islice(named, _MOST_NAMED))
    if len(extra) > _MOST_NAMED:
        problems.append(f"{len(extra) - _MOST_NAMED} more rows were trained too often")
    name = span.windows[window] if span.windows else None
    return EpochAudit(epoch, len(steps), len(hashes), stop == end, tuple(problems), name)


def _wrong_sizes(
    expected: range, steps: Mapping[int, list[TrainedRows]], span: JobSpan
) -> Iterator[str]:
    """Yield a message for each expected step whose number of recorded rows is wrong."""
    for step in expected:
        wanted = span.rows_in(step + 1) - span.rows_in(step)
        found = sum(len(rows.hashes) for rows in steps.get(step, ()))
        if found != wanted:
            yield f"step {step + 1} has {found} rows, not {wanted}"


def _difference(table: Hashes, trained: Hashes) -> tuple[Hashes, Hashes]:
    """Return the hashes that are more frequent in `table`, and those more frequent in `trained`.

    A hash is repeated: once for each occurrence that the other array lacks.
    """
    values, places = np.unique(np.concatenate([table, trained]), return_inverse=True)
    counts = np.bincount(places[: len(table)], minlength=len(values))
    counts -= np.bincount(places[len(table) :], minlength=len(values))
    return np.repeat(values, np.maximum(counts, 0)), np.repeat(values, np.maximum(-counts, 0))


def _rows_of(hashes: Hashes, table: Hashes) -> Iterator[int]:
    """Yield the index of a row of `table` for each item of `hashes`, in the order of `table`.

    The rows differ. Items for which `table` has no more rows are left out.
    """
    wanted = Counter(hashes.tolist())
    for row in np.flatnonzero(np.isin(table, hashes)).tolist():
        value = int(table[row])
        if wanted[value]:  # identical rows cannot be distinguished
            wanted[value] -= 1
            yield row


def _place(row: int, origin: Table) -> str:
    groups = origin.row_groups
    starts = list(accumulate((group.num_rows for group in groups), initial=0))
    number = bisect_right(starts, row) - 1
    group = groups[number]
    place = group.row_in_file(row - starts[number])
    return f"{group.file}, row group {group.index}, row {place}"


def _why(value: int, table: Hashes, origin: Table) -> str:
    found = np.flatnonzero(table == value)
    if not len(found):
        return "trained, but no row of the table"
    return f"trained too often: {_place(int(found[0]), origin)}"


def _when(value: int, steps: dict[int, list[TrainedRows]]) -> str:
    when = [
        str(step + 1)
        for step, of_step in sorted(steps.items())
        if any((rows.hashes == value).any() for rows in of_step)
    ]
    return f"step {', '.join(when[:_MOST_NAMED])}"


def _named(texts: Iterable[str], rest: str) -> list[str]:
    """Return the first ten texts; if there are N more, then also the text "N REST"."""
    rows = iter(texts)
    first = list(islice(rows, _MOST_NAMED))
    more = sum(1 for _ in rows) if len(first) == _MOST_NAMED else 0
    return [*first, f"{more} {rest}"] if more else first
