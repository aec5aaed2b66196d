"""Arrow columns to blocks of 4-byte cells: checked, converted, shuffled, dealt to lanes.

A block is `[columns, rows]` int32: ids as they are, other columns as the bits of float32 (see
`BatchLayout`). Work goes column by column, so that a column's cells stay in the processor's cache
between the check and the gathers. Whole columns are gathered with `np.take`: gathering row by row,
or batch by batch out of a big chunk, costs three times as much.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.arrow import ArrowReader
from distrain.loader.schedule import Piece
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted, id_hint

Block = NDArray[np.int32]


def decode_pieces(
    reader: ArrowReader,
    columns: Sequence[Wanted],
    groups: Sequence[RowGroup],
    permutation: NDArray[np.int64] | None,
    pieces: Sequence[Piece],
) -> list[tuple[int, Block]]:
    """Decode a chunk and deal its rows.

    Args:
        reader: Reads the row groups.
        columns: The columns of a block, in order.
        groups: The chunk's row groups, in the order in which their rows are laid down.
        permutation: The order of the chunk's rows; `None` keeps it.
        pieces: Who gets which rows of the order.

    Returns:
        Each piece's lane and its block, in the order of `pieces`.

    Raises:
        DataError: A row group cannot be read, or a value in it cannot be used.
    """
    tables = [reader.read(group) for group in groups]
    scratch = np.empty(sum(table.num_rows for table in tables), np.int32)
    orders = [_rows_of(permutation, piece) for piece in pieces]
    blocks = [np.empty((len(columns), p.stop - p.start), np.int32) for p in pieces]
    for index, column in enumerate(columns):
        parts = [
            _cells(table.column(index), column, group)
            for table, group in zip(tables, groups, strict=True)
        ]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, out=scratch)
        for block, order in zip(blocks, orders, strict=True):
            if isinstance(order, slice):
                block[index] = whole[order]
            else:
                # Any other mode makes NumPy copy the result once more, in case of an error.
                np.take(whole, order, out=block[index], mode="clip")
    return [(piece.lane, block) for piece, block in zip(pieces, blocks, strict=True)]


def _rows_of(permutation: NDArray[np.int64] | None, piece: Piece) -> NDArray[np.int64] | slice:
    rows = slice(piece.start, piece.stop)
    return rows if permutation is None else permutation[rows]


def _cells(column: pa.ChunkedArray, wanted: Wanted, group: RowGroup) -> Block:
    """A column's checked values as 4-byte cells: int32 ids, or the bits of float32."""
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        hint = "Fill the missing values when the table is prepared."
        raise _bad_value(wanted, group, row, f"column {wanted.name!r} holds a null", hint)
    values = _numpy(column)
    if wanted.kind == "id":
        return _id_cells(values, wanted, group)
    return _float_cells(values, wanted, group)


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _id_cells(values: NDArray[Any], wanted: Wanted, group: RowGroup) -> Block:
    # Seen as unsigned, a negative id is larger than any allowed one: one maximum checks both ends.
    sign_bit = 1 << (8 * values.itemsize - 1)
    limit = min(wanted.id_limit, sign_bit) if values.dtype.kind == "i" else wanted.id_limit
    unsigned = values.view(f"u{values.itemsize}")
    if values.size and int(unsigned.max()) >= limit:
        row = int(np.argmax(unsigned >= limit))
        value = int(values[row])
        message = f"id {value} of column {wanted.name!r} is not in 0..{wanted.id_limit - 1}"
        raise _bad_value(wanted, group, row, message, id_hint(wanted, value))
    return values.astype(np.int32, copy=False)


def _float_cells(values: NDArray[Any], wanted: Wanted, group: RowGroup) -> Block:
    with np.errstate(over="ignore"):  # what overflows float32 is reported below, with its value
        cells = values.astype(np.float32, copy=False)
    if wanted.kind == "label":
        good = (values == 0) | (values == 1)
        message, hint = "label {!r} is {}, not 0 or 1", "Is it the right target column?"
    else:
        good = np.isfinite(cells)
        message = "column {!r} holds {}, which is not a finite float32 number"
        hint = "Clip or fill it when the table is prepared."
    if not good.all():
        row = int(np.argmin(good))
        raise _bad_value(wanted, group, row, message.format(wanted.name, values[row]), hint)
    return cells.view(np.int32)


def _bad_value(wanted: Wanted, group: RowGroup, row: int, message: str, hint: str) -> DataError:
    where = {
        "file": group.file,
        "row group": group.index,
        "row in the group": row,
        "column": wanted.name,
    }
    return DataError(message, where=where, hint=hint)
