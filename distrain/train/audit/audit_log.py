"""A rank's account of the rows that it trained: a file of hashes, step by step.

    8 bytes     "DTROWS01"
    int64       steps that were done when this attempt began
    then for each step: int64 epoch, step (from 0, over the job), count; count hashes, int64 each

All little-endian. A process that is killed may leave half a step at the end.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from distrain.batch import Batch, Ragged
from distrain.errors import DataError, OutputError

_MAGIC = b"DTROWS01"
_INT = np.dtype("<i8")
_NUMBERS_PER_STEP = 3

Hashes = npt.NDArray[np.int64]


class TrainedRows(NamedTuple):
    epoch: int
    step: int
    hashes: Hashes


class AuditLog:
    """The writer of such a file; its methods raise `OutputError` where that cannot be written."""

    def __init__(self, file: BinaryIO, path: Path):
        self._file = file
        self._path = path

    @classmethod
    def begin(cls, path: Path, first_step: int) -> "AuditLog":
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = cls(path.open("wb", buffering=2**20), path)
        except OSError as error:
            raise _cannot_write(path, error) from None
        log._write(_MAGIC, np.array([first_step], _INT).tobytes())
        log.flush()
        return log

    def add(self, epoch: int, step: int, batch: Batch) -> None:
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
        """Hand everything to the operating system, which outlives this process."""
        try:
            self._file.flush()
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()


def read_audit(path: Path) -> tuple[int, Iterator[TrainedRows]]:
    """A file's first step and its whole steps; `DataError` for other files."""
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
    """The hash of each row's ids, numbers, labels and lists: `[rows]`, int64, on its device.

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
    """A number for each row's list, in which every value counts with its place."""
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
    """Values shifted right and filled with zeros; torch's own shift fills with the sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)
