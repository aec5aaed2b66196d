"""Reading rows out of a checkpoint's files, slab by slab, with their checksums."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor

from distrain.loader.host_memory import Slab
from distrain.models.embeddings.canonical_state import CanonicalTensor
from distrain.models.tensor_file import bytes_of, dtype_of
from distrain.storage.folder import Folder, FolderFile
from distrain.train.checkpoint.local_rows import LocalRows, Rows, local_rows_of, whole
from distrain.train.checkpoint.manifest import Damaged, Manifest
from distrain.train.checkpoint.shard import (
    RANK_PREFIX,
    SLAB_BYTES,
    Shard,
    ShardPiece,
    new_rank_tensors,
    row_bytes_of,
)

_HOST = torch.device("cpu")


class Need(NamedTuple):
    """A piece, and the tensors of this rank that take rows of it."""

    piece: ShardPiece
    row_bytes: int
    takers: list[LocalRows]


class PiecePart(NamedTuple):
    """Some rows of a piece, from its `start`-th to its `stop`-th."""

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
    """The reading of a checkpoint by one rank.

    `owned` are the ranks whose own tensors are read; `None` for this rank alone.
    """

    def __init__(
        self,
        folder: Folder,
        manifest: Manifest,
        tensors: Mapping[str, Tensor | CanonicalTensor],
        rank: int,
        after_slab: Callable[[], None],
        owned: Sequence[int] | None = None,
    ):
        self.begun = False  # whether some of the live tensors may have been overwritten
        self._folder = folder
        self._after_slab = after_slab
        held: dict[str, list[LocalRows]] = defaultdict(list)
        for one in local_rows_of(tensors):
            held[one.name].append(one)
        shards = manifest.shards
        numbers = range(len(shards))
        first = rank % max(1, len(numbers))
        owned = numbers[rank : rank + 1] if owned is None else owned
        # Files of which nothing is needed are not opened: with many ranks that is most of them.
        self._plan = [
            (shards[number], needs)
            for number in [*numbers[first:], *numbers[:first]]
            if (needs := _needs(shards[number], number in owned, held))
        ]
        self._owned = {number: shards[number] for number in owned}
        self._slab = Slab(SLAB_BYTES)

    def check(self) -> None:
        """Check the needed files before anything is changed; `Damaged` if one is not as written."""
        for shard, _ in self._plan:
            self._check_file(shard)
            self._after_slab()

    def run(self) -> dict[int, dict[str, Tensor]]:
        """Read all rows of this rank, after `check`; `Damaged` if bytes are not those written.

        Returns the ranks' own tensors of `owned`, by the rank that saved them.
        """
        rank_tensors = {number: new_rank_tensors(shard) for number, shard in self._owned.items()}
        by_file = {shard.file: rank_tensors[number] for number, shard in self._owned.items()}
        for shard, needs in self._plan:
            for need in needs:
                if need.piece.name.startswith(RANK_PREFIX):
                    own = by_file[shard.file][need.piece.name.removeprefix(RANK_PREFIX)]
                    need.takers[:] = [whole(need.piece.name, own, alone=True)]
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
            takers = [one for part in parts for one in part.need.takers]
            beside = next((one.values.device for one in takers if not one.values.is_cpu), _HOST)
            slab = self._slab.lend(sum(part.num_bytes for part in parts), beside)
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

    @torch.no_grad()
    def _hand_out(self, part: PiecePart, content: Tensor) -> None:
        self.begun = True
        rows = part.need.piece.rows.part(part.start, part.stop)
        for held in part.need.takers:
            if not rows.may_meet(held.rows):
                continue
            values = content.view(held.values.dtype).view(-1, *held.values.shape[1:])
            # All of it travels, for those of its rows that lie apart would be copied before.
            values = values.to(held.values.device)
            for source, target in rows.meet(held.rows):
                held.values[target] = values[source]

    @contextlib.contextmanager
    def _missing_is_damage(self, shard: Shard) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self._damaged(shard, "it is missing") from None

    def _damaged(self, shard: Shard, how: str) -> Damaged:
        return Damaged(f"damaged: {how}", where={"file": f"{self._folder.url}/{shard.file}"})


def _needs(shard: Shard, owned: bool, held: Mapping[str, list[LocalRows]]) -> list[Need]:
    """The pieces that a rank needs, by offset; `owned`: it takes the writer's own tensors."""
    needs = []
    for piece in shard.pieces:
        if piece.name.startswith(RANK_PREFIX):
            if owned:
                dtype, shape = shard.rank_tensors[piece.name.removeprefix(RANK_PREFIX)]
                needs.append(Need(piece, row_bytes_of(dtype, shape), []))
            continue
        takers = [one for one in held.get(piece.name, ()) if piece.rows.may_meet(one.rows)]
        if takers:
            needs.append(Need(piece, takers[0].row_bytes, takers))
    return needs


def slabs_of(needs: Sequence[Need], most_bytes: int) -> Iterator[list[PiecePart]]:
    """Cut a file's needed pieces into stretches of bytes of at most `most_bytes`, or one row."""
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


def row_slabs(
    folder: Folder, manifest: Manifest, name: str, wanted: Callable[[Rows], bool]
) -> Iterator[tuple[Rows, Tensor]]:
    """Read a tensor in slabs `[rows, ...]`, all in one piece of memory; a scalar is one row.

    `Damaged` if bytes are not those written, which shows at a piece's end.
    """
    dtype_name, shape = manifest.tensors[name]
    row = torch.empty((1, *shape[1:]), dtype=dtype_of(dtype_name))
    step = max(1, SLAB_BYTES // max(1, row.numel() * row.element_size()))
    slab = Slab()
    for shard in manifest.shards:
        for piece in shard.pieces:
            if piece.name != name or not wanted(piece.rows):
                continue
            rows = min(step, piece.rows.count)
            num_bytes = rows * row.numel() * row.element_size()
            lent = slab.lend(num_bytes, _HOST)
            for part, content in _read(folder, shard, piece, lent, rows):
                yield part, content.view(row.dtype).view(part.count, *shape[1:])


def _read(
    folder: Folder, shard: Shard, piece: ShardPiece, slab: Tensor, rows: int
) -> Iterator[tuple[Rows, Tensor]]:
    hashed, row_bytes, offset = xxhash.xxh3_64(), len(slab) // rows, piece.offset
    where = {"file": f"{folder.url}/{shard.file}"}
    try:
        with folder.reader(shard.file) as file:
            for start in range(0, piece.rows.count, rows):
                part = piece.rows.part(start, min(start + rows, piece.rows.count))
                content = slab[: part.count * row_bytes]
                if file.read_into(offset, bytes_of(content)) != len(content):
                    raise Damaged("damaged: it ends too early", where=where)
                hashed.update(bytes_of(content))
                offset += len(content)
                yield part, content
    except FileNotFoundError:
        raise Damaged("damaged: it is missing", where=where) from None
    if hashed.hexdigest() != piece.xxh3_64:
        raise Damaged(f"damaged: the checksum of {piece.name} is wrong", where=where)
