"""Reads tensors of a checkpoint by name, slab by slab, and verifies their checksums.

This is the only reader of a checkpoint's files. A resumed training, the scoring of a model and a
warm start differ only in the receivers (`RowReceiver`) that they pass. This module does not depend
on models and optimizers.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
import xxhash
from torch import Tensor

from distrain.loader.host_memory import Slab
from distrain.models.embeddings.canonical_state import CanonicalTensor
from distrain.models.tensor_file import bytes_of, dtype_of
from distrain.storage.folder import Folder, FolderFile
from distrain.train.checkpoint.local_rows import Rows, local_rows_of, whole
from distrain.train.checkpoint.manifest import Damaged, Manifest, TensorFacts
from distrain.train.checkpoint.shard import (
    RANK_PREFIX,
    SLAB_BYTES,
    Shard,
    ShardPiece,
    new_rank_tensors,
    row_bytes_of,
)

_HOST = torch.device("cpu")


class RowReceiver(Protocol):
    """Receiver of the rows of one tensor, such as `LocalRows`."""

    @property
    def device(self) -> torch.device: ...

    def wants(self, rows: Rows) -> bool:
        """Return False if the receiver needs none of these rows; True if it may need some."""

    def take(self, rows: Rows, values: Tensor) -> None:
        """Copy the needed rows from `values`, `[rows.count, ...]`, valid only during the call."""


RowReceivers = Mapping[str, Sequence[RowReceiver]]  # by the tensor's name


def receivers_of(tensors: Mapping[str, Tensor | CanonicalTensor]) -> dict[str, list[RowReceiver]]:
    """Return this rank's rows of the live tensors, by name, as receivers of the saved rows."""
    receivers: dict[str, list[RowReceiver]] = defaultdict(list)
    for one in local_rows_of(tensors):
        receivers[one.name].append(one)
    return receivers


class Need(NamedTuple):
    """A piece of a file that this rank needs, and the receivers of its rows.

    A piece is adjacent rows of a tensor (`shard.py`). `facts` are the tensor's dtype and shape.
    """

    piece: ShardPiece
    facts: TensorFacts
    receivers: list[RowReceiver]

    @property
    def row_bytes(self) -> int:
        return row_bytes_of(*self.facts)


class PiecePart(NamedTuple):
    """The rows with the indices `start` to `stop - 1` of a piece."""

    need: Need
    start: int
    stop: int

    @property
    def num_bytes(self) -> int:
        return (self.stop - self.start) * self.need.row_bytes

    @property
    def offset(self) -> int:
        return self.need.piece.offset + self.start * self.need.row_bytes


class ShardReading:
    """Reads the rows that one rank needs from a checkpoint: first call `check`, then `run`.

    Args:
        receivers: The receivers of the rows, by tensor.
        rank: The rank that reads; ranks begin with different files.
        after_slab: Called after each slab that was read, and each file that was checked.
        owned: The ranks of the saving run whose own tensors (such as random states) are read;
            `None` for those of rank `rank`.
    """

    def __init__(
        self,
        folder: Folder,
        manifest: Manifest,
        receivers: RowReceivers,
        rank: int,
        after_slab: Callable[[], None],
        owned: Sequence[int] | None = None,
    ):
        self.begun = False  # whether live tensors may have been overwritten
        self._folder = folder
        self._after_slab = after_slab
        shards = manifest.shards
        numbers = range(len(shards))
        first = rank % max(1, len(numbers))
        owned = numbers[rank : rank + 1] if owned is None else owned
        # Files without needed rows are not opened: with many ranks these are most of them.
        self._plan = [
            (shards[number], needs)
            for number in [*numbers[first:], *numbers[:first]]
            if (needs := _needs(shards[number], number in owned, receivers, manifest.tensors))
        ]
        self._owned = {number: shards[number] for number in owned}
        self._slab = Slab(SLAB_BYTES)

    def check(self) -> None:
        """Check size and header of the needed files, before live tensors are changed.

        Raises `Damaged` if a file is missing or differs from the manifest.
        """
        for shard, _ in self._plan:
            self._check_file(shard)
            self._after_slab()

    def run(self) -> dict[int, dict[str, Tensor]]:
        """Pass all needed rows to their receivers; return the own tensors of the ranks in `owned`.

        The result maps a rank of the saving run to its tensors by name. Raises `Damaged` if a
        checksum is wrong, or a file is missing or too short; some rows may have been passed
        already.
        """
        rank_tensors = {number: new_rank_tensors(shard) for number, shard in self._owned.items()}
        by_file = {shard.file: rank_tensors[number] for number, shard in self._owned.items()}
        for shard, needs in self._plan:
            for need in needs:
                if need.piece.name.startswith(RANK_PREFIX):
                    own = by_file[shard.file][need.piece.name.removeprefix(RANK_PREFIX)]
                    need.receivers[:] = [whole(need.piece.name, own, alone=True)]
            with self._missing_is_damage(shard), self._folder.reader(shard.file) as file:
                self._read_file(file, shard, needs)
        return rank_tensors

    def _check_file(self, shard: Shard) -> None:
        with self._missing_is_damage(shard):
            size = self._folder.size(shard.file)
            if size != shard.size_bytes:
                raise self._damaged(shard, f"it has {size:,} bytes, not {shard.size_bytes:,}")
            header = bytearray(shard.header_bytes)
            with self._folder.reader(shard.file) as file:
                file.read_into(0, memoryview(header))
        if xxhash.xxh3_64_hexdigest(bytes(header)) != shard.header_xxh3_64:
            raise self._damaged(shard, "the checksum of its header is wrong")

    def _read_file(self, file: FolderFile, shard: Shard, needs: Sequence[Need]) -> None:
        hashed = xxhash.xxh3_64()
        for parts in slabs_of(needs, SLAB_BYTES):
            receivers = [one for part in parts for one in part.need.receivers]
            beside = next((one.device for one in receivers if one.device != _HOST), _HOST)
            slab = self._slab.allocate(sum(part.num_bytes for part in parts), beside)
            if file.read_into(parts[0].offset, bytes_of(slab)) != len(slab):
                raise self._damaged(shard, "it ends too early")
            for part in parts:
                done = part.offset - parts[0].offset
                content = slab[done : done + part.num_bytes]
                hashed.update(bytes_of(content))
                self._hand_out(part, content)
                piece = part.need.piece
                if part.stop == piece.rows.count:
                    if hashed.hexdigest() != piece.xxh3_64:
                        raise self._damaged(shard, f"the checksum of {piece.name} is wrong")
                    hashed.reset()
            self._after_slab()

    def _hand_out(self, part: PiecePart, content: Tensor) -> None:
        self.begun = True
        rows = part.need.piece.rows.part(part.start, part.stop)
        dtype, shape = part.need.facts
        values = content.view(dtype_of(dtype)).view(rows.count, *shape[1:])
        for receiver in part.need.receivers:
            receiver.take(rows, values)

    @contextlib.contextmanager
    def _missing_is_damage(self, shard: Shard) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self._damaged(shard, "it is missing") from None

    def _damaged(self, shard: Shard, how: str) -> Damaged:
        return Damaged(f"damaged: {how}", where={"file": f"{self._folder.url}/{shard.file}"})


def _needs(
    shard: Shard, owned: bool, receivers: RowReceivers, facts: Mapping[str, TensorFacts]
) -> list[Need]:
    """Return the pieces of a rank's file that contain rows for `receivers`, in file order.

    `facts` are dtypes and shapes by tensor. With `owned`, the result also has the own tensors of
    the rank that wrote the file.
    """
    needs = []
    for piece in shard.pieces:
        if piece.name.startswith(RANK_PREFIX):
            if owned:
                own = shard.rank_tensors[piece.name.removeprefix(RANK_PREFIX)]
                needs.append(Need(piece, own, []))
            continue
        wanting = [one for one in receivers.get(piece.name, ()) if one.wants(piece.rows)]
        if wanting:
            needs.append(Need(piece, facts[piece.name], wanting))
    return needs


def slabs_of(needs: Sequence[Need], most_bytes: int) -> Iterator[list[PiecePart]]:
    """Yield contiguous ranges of a file that cover the needed pieces, as lists of their parts.

    A range has at most `most_bytes`, unless it is a single row.
    """
    slab: list[PiecePart] = []
    room, end = most_bytes, -1
    for need in needs:
        if need.piece.offset != end and slab:
            yield slab
            slab, room = [], most_bytes
        done = 0
        while done < need.piece.rows.count:
            if slab and room < need.row_bytes:
                yield slab
                slab, room = [], most_bytes
            taken = min(need.piece.rows.count - done, max(1, room // need.row_bytes))
            slab.append(PiecePart(need, done, done + taken))
            done += taken
            room -= slab[-1].num_bytes
        end = slab[-1].offset + slab[-1].num_bytes
    if slab:
        yield slab
