"""The rows of one saved tensor, slab by slab, whichever files they are in."""

from collections.abc import Callable, Iterator

import torch
import xxhash
from torch import Tensor

from distrain.checkpoint.manifest import Damaged, Manifest
from distrain.checkpoint.rows import Rows
from distrain.checkpoint.shard import SLAB_BYTES, Piece, Shard
from distrain.embeddings.host_memory import empty
from distrain.models.tensor_file import bytes_of, dtype_of
from distrain.storage import Folder


def row_slabs(
    folder: Folder, manifest: Manifest, name: str, wanted: Callable[[Rows], bool]
) -> Iterator[tuple[Rows, Tensor]]:
    """Read a tensor; memory for one slab is taken, and used again for the next.

    Args:
        folder: Of the checkpoint.
        manifest: Its manifest.
        name: Of the tensor.
        wanted: Whether a piece that has these rows is to be read.

    Yields:
        Which rows of the tensor, and their values `[rows, ...]`; a scalar is one row.

    Raises:
        Damaged: A file is missing or too short, or some bytes are not those that were written,
            which shows at the end of a piece.
        OSError: A file could not be read.
    """
    dtype_name, shape = manifest.tensors[name]
    row = empty((1, *shape[1:]), dtype_of(dtype_name))
    step = max(1, SLAB_BYTES // max(1, row.numel() * row.element_size()))
    slab = empty((0,), torch.uint8)
    for shard in manifest.shards:
        for piece in shard.pieces:
            if piece.name != name or not wanted(piece.rows):
                continue
            rows = min(step, piece.rows.count)
            num_bytes = rows * row.numel() * row.element_size()
            if len(slab) < num_bytes:
                slab = empty((num_bytes,), torch.uint8)
            for part, content in _read(folder, shard, piece, slab[:num_bytes], rows):
                yield part, content.view(row.dtype).view(part.count, *shape[1:])


def _read(
    folder: Folder, shard: Shard, piece: Piece, slab: Tensor, rows: int
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
