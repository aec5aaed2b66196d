"""Files in the safetensors format, written and read in slabs of rows.

The format is the length of a header (8 bytes, little-endian), the header (JSON: dtype, shape and
byte range of each tensor), and the tensors' bytes. The safetensors library writes and reads whole
tensors. Here a tensor may be larger than the available memory, and may be sharded over ranks.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import DistError

from distrain.errors import DataError
from distrain.loader.host_memory import empty
from distrain.models.embeddings.peers import Peers, gather_texts


class RankZeroWriter(AbstractContextManager["RankZeroWriter"]):
    """Context in which rank 0 writes a file; with `collective`, all ranks succeed or all fail.

    If all ranks send data and the disk of rank 0 is full, they would otherwise wait forever. So
    rank 0 reports before each collective operation whether it continues, and at the end whether it
    has written everything::

        with RankZeroWriter(peers, device, collective=True) as writer:
            for ...:
                writer.go_on()
                ...             # a collective operation
                if writer.writes:
                    ...         # rank 0 writes, and may fail

    If rank 0 fails, its error propagates on rank 0. The other ranks raise a `DistError` that quotes
    it, as if they had lost a peer, so rank 0's error is reported as the cause. Each `go_on`
    exchanges 8 bytes per rank on the backend's `device`. If the other ranks send no data, set
    `collective` to False: then nothing is exchanged, and an error of rank 0 does not affect them.

    Attributes:
        writes: Whether this rank writes.
    """

    def __init__(self, peers: Peers, device: torch.device, *, collective: bool):
        self.writes = peers.rank == 0
        self._peers = peers
        self._device = device
        self._collective = collective and peers.num_ranks > 1

    def go_on(self) -> None:
        """Raise a DistError on the other ranks if rank 0 has failed; collective if `collective`."""
        if self._collective:
            problem = gather_texts(self._peers, self._device, "")[0]
            if problem:
                raise DistError(f"rank 0 could not write the file: {problem}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.go_on()
        elif self.writes and self._collective:
            # If the error was that a peer is gone, no rank can receive a report.
            with contextlib.suppress(RuntimeError):
                gather_texts(self._peers, self._device, str(error) or type(error).__name__)


SLAB_BYTES = 8 << 20
SYNC_BYTES = 1 << 30
"""Bytes written between two calls of fsync; otherwise the last one would write the whole file."""

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in the safetensors format.

    >>> dtype_name(torch.bfloat16)
    'BF16'
    """
    return _NAMES[dtype]


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype with a name of the safetensors format.

    >>> dtype_of("BF16")
    torch.bfloat16
    """
    return _DTYPES[name]


class Slabs(Protocol):
    """A tensor that is read in slabs of rows, such as a `CanonicalTensor`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, of at least one dimension; the first dimension counts rows."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def shared(self) -> bool:
        """Whether `read` is a collective operation."""

    def read(self, rows: slice) -> Tensor | None:
        """Return some rows, `[rows, ...]`, on the CPU; `None` on ranks other than rank 0."""

    def write(self, rows: slice, values: Tensor) -> None: ...


def write_tensors(
    path: Path | None,
    tensors: Mapping[str, Tensor | Slabs],
    writer: RankZeroWriter,
    after_slab: Callable[[], None] = lambda: None,
) -> None:
    """Write a safetensors file; a collective operation if a tensor is shared.

    Args:
        path: The file on the rank that writes, `None` on the other ranks.
        tensors: The tensors by name; the same names, shapes and dtypes on every rank.
        writer: Selects the rank that writes.
        after_slab: Called on every rank after each slab.

    Raises:
        OSError: The file could not be written.
        torch.distributed.DistError: The writing rank could not write it.
    """
    names = _order(tensors)
    unsynced = 0
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(open(path, "wb")) if path else None
        if handle:
            handle.write(header_of({name: tensors[name] for name in names}))
        for name in names:
            for slab in _slabs(tensors[name], writer):
                if handle and slab is not None:
                    content = bytes_of(slab)
                    handle.write(content)
                    unsynced += len(content)
                    if unsynced >= SYNC_BYTES:
                        handle.flush()
                        os.fsync(handle.fileno())
                        unsynced = 0
                after_slab()


class TensorFile:
    """Reads a safetensors file in slabs, so that no whole tensor is in memory besides its target.

    Attributes:
        dtypes: The dtype of each tensor.
        shapes: The shape of each tensor.

    Raises:
        DataError: The file is not a safetensors file, is incomplete, or has unknown dtypes.
    """

    def __init__(self, path: Path):
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            with safe_open(path, framework="pt"):  # for its checks of the header
                pass
            with open(path, "rb") as handle:
                length = int.from_bytes(handle.read(8), "little")
                header = json.loads(handle.read(length))
        except RecursionError:
            raise self._damaged("its header is nested too deeply") from None
        except (SafetensorError, OSError, ValueError) as error:
            raise self._damaged(str(error)) from None
        header.pop("__metadata__", None)
        unknown = {entry["dtype"] for entry in header.values()} - set(_DTYPES)
        if unknown:
            raise self._damaged(f"unknown types {', '.join(sorted(unknown))}")
        self.dtypes = {name: _DTYPES[entry["dtype"]] for name, entry in header.items()}
        self.shapes = {name: tuple(entry["shape"]) for name, entry in header.items()}
        self._starts = {
            name: 8 + length + entry["data_offsets"][0] for name, entry in header.items()
        }

    def read(self, name: str, take: Callable[[slice, Tensor], None]) -> None:
        """Call `take(rows, values)` for each slab of a tensor, in order.

        `rows` is a range of the tensor's rows, and `values` has these rows, on the CPU; they are
        only valid during the call. For a scalar, `rows` is `slice(0, 1)`, and `values` has no
        dimension.

        Raises:
            DataError: The file is too short or cannot be read.
        """
        dtype, shape = self.dtypes[name], self.shapes[name]
        buffer = empty((0,), dtype)
        try:
            with open(self.path, "rb", buffering=0) as handle:
                handle.seek(self._starts[name])
                for rows in _row_slabs(shape, dtype):
                    part = (rows.stop - rows.start, *shape[1:]) if shape else ()
                    if len(buffer) < math.prod(part):
                        buffer = empty((math.prod(part),), dtype)
                    values = buffer[: math.prod(part)].view(part)
                    self._fill(handle, bytes_of(values))
                    take(rows, values)
        except OSError as error:
            raise self._damaged(str(error)) from None

    def _fill(self, handle: Any, content: memoryview) -> None:
        done = 0
        while done < len(content):
            count = handle.readinto(content[done:])
            if not count:
                raise self._damaged("it ends too early")
            done += count

    def _damaged(self, how: str) -> DataError:
        return DataError(f"damaged: {how}", where={"file": str(self.path)})


def _order(tensors: Mapping[str, Tensor | Slabs]) -> list[str]:
    """Return the tensors' names in the order of the file: widest dtype first, then by name.

    The safetensors library also writes the widest dtypes first, so that each tensor is aligned.
    """
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def header_of(tensors: Mapping[str, Tensor | Slabs], align_bytes: int = 8) -> bytes:
    """Return the bytes before the tensors of a file: the header's length, and the header.

    The tensors follow each other in the order of `tensors`. The number of the returned bytes is a
    multiple of `align_bytes`, which must be a multiple of 8.
    """
    entries = {}
    done = 0
    for name, tensor in tensors.items():
        size = math.prod(tensor.shape) * tensor.dtype.itemsize
        entries[name] = {
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "data_offsets": [done, done + size],
        }
        done += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % align_bytes)
    return len(text).to_bytes(8, "little") + text


def _slabs(tensor: Tensor | Slabs, writer: RankZeroWriter) -> Iterator[Tensor | None]:
    if isinstance(tensor, Tensor):
        yield tensor.detach().cpu().contiguous() if writer.writes else None
        return
    for rows in _row_slabs(tensor.shape, tensor.dtype):
        if tensor.shared:
            writer.go_on()
        yield tensor.read(rows)


def _row_slabs(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[slice]:
    num_rows = shape[0] if shape else 1
    step = max(1, SLAB_BYTES // max(1, math.prod(shape[1:]) * dtype.itemsize))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


@torch.no_grad()
def put_rows(target: Tensor | Slabs, rows: slice, values: Tensor) -> None:
    """Write `values`, a slab from `TensorFile.read`, to the rows `rows` of `target`.

    The values are converted to the target's dtype.
    """
    if not isinstance(target, Tensor):
        target.write(rows, values)
    elif target.dim() == 0:
        target.copy_(values)
    else:
        target[rows] = values.to(target.device)


def bytes_of(values: Tensor) -> memoryview:
    return memoryview(values.reshape(-1).view(torch.uint8).numpy().data)
