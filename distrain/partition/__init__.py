"""Turns parquet footers into lanes: which rows each rank trains on at each step of an epoch.

`footers` finds the row groups and checks all that footers show; `table` keeps them, `slices` cuts
large ones; `order` joins small ones to parts and lays the row groups of an epoch out as one line of
rows; `plan` cuts the line into lanes and deals them to steps, `pieces` says which chunks a lane
goes through, which `dealing` decides where there are slices. The last four are pure functions of
numbers.
"""

from distrain.partition.dealing import num_bands
from distrain.partition.footers import PARQUET_SUFFIXES, read_footers
from distrain.partition.lazy_sequence import LazySequence
from distrain.partition.order import IS_BUILT as ORDER_IS_BUILT
from distrain.partition.order import (
    SHUFFLES,
    Chunk,
    Chunks,
    Parts,
    chunk_order,
    key_order,
    parts_of,
    row_keys,
    row_order,
    row_permutation,
    sliced_order,
)
from distrain.partition.pieces import Piece, Pieces, forward_pieces, lane_pieces
from distrain.partition.plan import EpochPlan
from distrain.partition.slices import LARGE_ROWS, Slices
from distrain.partition.table import RowGroup, Slice, Table
from distrain.partition.wanted_columns import (
    FILL_HINT,
    WantedColumn,
    column_of_leaf,
    type_problem,
    value_problem,
    wanted_columns,
)

__all__ = [
    "Chunk",
    "Chunks",
    "EpochPlan",
    "FILL_HINT",
    "LARGE_ROWS",
    "LazySequence",
    "ORDER_IS_BUILT",
    "PARQUET_SUFFIXES",
    "Parts",
    "Piece",
    "Pieces",
    "RowGroup",
    "SHUFFLES",
    "Slice",
    "Slices",
    "Table",
    "WantedColumn",
    "chunk_order",
    "column_of_leaf",
    "forward_pieces",
    "key_order",
    "lane_pieces",
    "num_bands",
    "parts_of",
    "read_footers",
    "row_keys",
    "row_order",
    "row_permutation",
    "sliced_order",
    "type_problem",
    "value_problem",
    "wanted_columns",
]
