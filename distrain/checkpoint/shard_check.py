"""What a manifest says of files, compared with itself: whether such files could have been written.

Whoever can write to a bucket can write a manifest. Its words lead to paths, allocations and places
in memory, so that none of them is followed before it has been looked at.
"""

import math
from collections.abc import Mapping, Sequence

from distrain.checkpoint.rows import Rows
from distrain.checkpoint.shard import (
    RANK_PREFIX,
    Piece,
    Shard,
    num_rows,
    row_bytes_of,
    shard_file,
)

MOST_BYTES = 1 << 60
"""Of a tensor, with every dimension counted as at least 1: more is no size but damage."""

Facts = tuple[str, tuple[int, ...]]


def check_shards(tensors: Mapping[str, Facts], shards: Sequence[Shard]) -> None:
    """Make sure that these files could hold these tensors.

    Args:
        tensors: dtype and shape by name.
        shards: By the rank that wrote them.

    Raises:
        ValueError, TypeError, KeyError: They could not; the text says why.
    """
    for name, facts in tensors.items():
        _check_facts(name, facts)
    for rank, shard in enumerate(shards):
        # The very name, and so no path to anywhere else, and no file twice.
        if shard.file != shard_file(rank, len(shards)):
            raise ValueError(
                f"the file of rank {rank} is called {shard.file!r}, "
                f"not {shard_file(rank, len(shards))}"
            )
        try:
            _check_shard(tensors, shard)
        except KeyError as error:
            raise ValueError(f"{shard.file}: there is no {error}") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{shard.file}: {error}") from None


def check_whole_number(name: str, value: object, least: int = 0) -> None:
    """Make sure that a JSON value is a whole number that can be one of bytes or rows.

    Raises:
        TypeError: It is not.
    """
    if type(value) is not int or not least <= value <= MOST_BYTES:
        raise TypeError(f"{name} is {value!r:.80}")


def _check_shard(tensors: Mapping[str, Facts], shard: Shard) -> None:
    check_whole_number("size_bytes", shard.size_bytes)
    check_whole_number("header_bytes", shard.header_bytes, least=8)
    for name, facts in shard.rank_tensors.items():
        _check_facts(name, facts)
    lacking = {
        f"{RANK_PREFIX}{name}"
        for name, (_, shape) in shard.rank_tensors.items()
        if math.prod(shape)
    }
    end = shard.header_bytes
    for piece in shard.pieces:
        own = piece.name.startswith(RANK_PREFIX)
        dtype, shape = (
            shard.rank_tensors[piece.name.removeprefix(RANK_PREFIX)] if own else tensors[piece.name]
        )
        _check_rows(piece, num_rows(shape))
        if own:
            if piece.rows != Rows(0, 1, num_rows(shape)) or piece.name not in lacking:
                raise ValueError(f"{piece.name} is not there as a whole, once")
            lacking.remove(piece.name)
        if piece.offset != end:
            raise ValueError(f"{piece.name} lies at {piece.offset!r:.80}, not at {end}")
        end += piece.rows.count * row_bytes_of(dtype, shape)
    if lacking:
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
    if end != shard.size_bytes:
        raise ValueError(f"its pieces end at {end}, and it at {shard.size_bytes}")


def _check_rows(piece: Piece, of: int) -> None:
    rows = piece.rows
    check_whole_number("a piece's first row", rows.first)
    check_whole_number("a piece's stride", rows.stride, least=1)
    check_whole_number("a piece's number of rows", rows.count, least=1)
    if rows.numbers()[-1] >= of:
        raise ValueError(f"{piece.name} has {of} rows, but a piece goes to {rows.numbers()[-1]}")


def _check_facts(name: str, facts: Facts) -> None:
    dtype, shape = facts
    for size in shape:
        check_whole_number(f"a dimension of {name}", size)
    if math.prod(max(size, 1) for size in shape) * row_bytes_of(dtype, ()) > MOST_BYTES:
        raise ValueError(f"{name} of shape {list(shape)} is too large to be true")
