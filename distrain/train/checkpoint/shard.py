"""One rank's file of a checkpoint: its share of the tensors, in the safetensors format.

Rows of a tensor that are adjacent in the rank's memory are one *piece*. A piece is one tensor of
the file, called `NAME[FIRST:STOP:STRIDE]` by its rows in the tensor's canonical order, or
`NAME[FIRST:STOP:RANKS:RANK]` if rows are sharded over ranks. The rank's own tensors, such as its
random state, are called `rank.NAME`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch import Tensor

from distrain.loader.host_memory import Slab
from distrain.models.tensor_file import bytes_of, dtype_name, dtype_of, header_of
from distrain.storage.folder import PAGE_BYTES, Folder
from distrain.train.checkpoint.local_rows import LocalRows, Rows, whole

SLAB_BYTES = 32 << 20
"""The size of a slab: the bytes that are copied, written or read at a time, at most.

A single row may be larger.
"""

RANK_PREFIX = "rank."


@dataclass(frozen=True)
class ShardPiece:
    """Rows of a tensor that are stored without gaps in one rank's file."""

    name: str  # the tensor's name; `rank.NAME` for one of the rank's own tensors
    rows: Rows
    offset: int  # the first byte in the file
    xxh3_64: str  # the checksum of the piece's bytes, in hex


@dataclass(frozen=True)
class Shard:
    """The description of one rank's file, as the manifest contains it."""

    file: str
    size_bytes: int
    header_bytes: int  # the size of the header, which precedes the pieces
    header_xxh3_64: str
    pieces: tuple[ShardPiece, ...]  # in the order of their offsets, without gaps
    rank_tensors: Mapping[str, tuple[str, tuple[int, ...]]]  # dtype and shape of the rank's own

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "size_bytes": self.size_bytes,
            "header_bytes": self.header_bytes,
            "header_xxh3_64": self.header_xxh3_64,
            "pieces": [
                [p.name, p.rows.first, p.rows.stride, p.rows.count, p.offset, p.xxh3_64]
                + ([] if p.rows.rank is None else [p.rows.rank, p.rows.block])
                for p in self.pieces
            ],
            "rank_tensors": {n: [d, list(s)] for n, (d, s) in self.rank_tensors.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Shard":
        return cls(
            document["file"],
            document["size_bytes"],
            document["header_bytes"],
            document["header_xxh3_64"],
            tuple(
                ShardPiece(name, Rows(first, stride, count, *dealt), offset, checksum)
                for name, first, stride, count, offset, checksum, *dealt in document["pieces"]
            ),
            {n: (d, tuple(s)) for n, (d, s) in document["rank_tensors"].items()},
        )


def shard_file(rank: int, num_ranks: int) -> str:
    return f"rank-{rank}-of-{num_ranks}.safetensors"


@dataclass(frozen=True)
class ShardContent:
    """The content of one rank's file before it is written."""

    held: tuple[LocalRows, ...]  # in the file's order, including the rank's own tensors
    rank_tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    # if `held` was copied: the memory that contains all its values in order, `[num_bytes]`, uint8
    memory: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        return sum(held.num_bytes for held in self.held)


def content_of(share: Sequence[LocalRows], rank_tensors: Mapping[str, Tensor]) -> ShardContent:
    """Return the content of a rank's file, sorted by dtype, the widest first, to align all values.

    Args:
        share: The rows that this rank writes (`rows_to_write`).
        rank_tensors: The rank's own tensors, by name.
    """
    own = [whole(RANK_PREFIX + name, tensor, alone=True) for name, tensor in rank_tensors.items()]
    held = [*share, *(one for one in own if one.num_bytes)]
    held.sort(key=lambda one: -one.values.dtype.itemsize)
    facts = {n: (dtype_name(t.dtype), tuple(t.shape)) for n, t in rank_tensors.items()}
    return ShardContent(tuple(held), facts)


def copied(content: ShardContent, buffer: Tensor, after_slab: Callable[[], None]) -> ShardContent:
    """Copy the content into `buffer`, and return the copy; `after_slab` is called after each slab.

    `buffer` is `[content.num_bytes]` or longer, uint8, on the CPU, aligned to 8 bytes. If it is
    aligned to `PAGE_BYTES`, a disk can write it without another copy.
    """
    copies: list[LocalRows] = []
    done, slab = 0, Slab()
    for held in content.held:
        own = buffer[done : done + held.num_bytes].view(held.values.dtype).view(held.values.shape)
        for rows in _row_slabs(held):
            own[rows].copy_(slab.on_host(held.values[rows]))
            after_slab()
        copies.append(held._replace(values=own))
        done += held.num_bytes
    return ShardContent(tuple(copies), content.rank_tensors, buffer[:done])


def write_shard(
    folder: Folder, file: str, content: ShardContent, after_slab: Callable[[], None]
) -> Shard:
    """Write a rank's file; return its description, with a checksum of each piece.

    `after_slab` is called after each slab that is written, and each one that is hashed. Raises the
    errors of `folder.writer`.
    """
    tensors = {_key_of(held): held.values for held in content.held}
    header = header_of(tensors, align_bytes=PAGE_BYTES)
    offset = len(header)
    pieces: list[ShardPiece] = []
    staging = Slab()
    with folder.writer(file) as out:
        out.write(memoryview(header))
        for slab in _memory_slabs(content.memory):
            out.write(slab)
            after_slab()
        for held in content.held:
            hashed = xxhash.xxh3_64()
            for rows in _row_slabs(held):
                slab = bytes_of(staging.on_host(held.values[rows]).contiguous())
                hashed.update(slab)
                if content.memory is None:
                    out.write(slab)
                after_slab()
            pieces.append(ShardPiece(held.name, held.rows, offset, hashed.hexdigest()))
            offset += held.num_bytes
    checksum = xxhash.xxh3_64_hexdigest(header)
    return Shard(file, offset, len(header), checksum, tuple(pieces), content.rank_tensors)


def new_rank_tensors(shard: Shard) -> dict[str, Tensor]:
    """Return uninitialised tensors on the CPU for the rank's own tensors, by name."""
    return {
        name: torch.empty(shape, dtype=dtype_of(dtype))
        for name, (dtype, shape) in shard.rank_tensors.items()
    }


def num_rows(shape: Sequence[int]) -> int:
    return shape[0] if shape else 1


def row_bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Return the number of bytes of a row of a tensor; a scalar is one row.

    >>> row_bytes_of("F32", (10, 4)), row_bytes_of("I64", ())
    (16, 8)
    """
    return math.prod(shape[1:]) * dtype_of(dtype).itemsize


def _key_of(held: LocalRows) -> str:
    if held.name.startswith(RANK_PREFIX):
        return held.name
    rows = held.rows
    of_rank = "" if rows.rank is None else f":{rows.rank}"
    return f"{held.name}[{rows.row(0)}:{rows.last + 1}:{rows.stride}{of_rank}]"


def _memory_slabs(memory: Tensor | None) -> Iterator[memoryview]:
    whole = memoryview(b"") if memory is None else bytes_of(memory)
    for start in range(0, len(whole), SLAB_BYTES):
        yield whole[start : start + SLAB_BYTES]


def _row_slabs(held: LocalRows) -> Iterator[slice]:
    step = max(1, SLAB_BYTES // held.row_bytes)
    for start in range(0, held.rows.count, step):
        yield slice(start, min(start + step, held.rows.count))
