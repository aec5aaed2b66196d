"""Parquet footers to lanes: which rows each rank trains on at each step of an epoch.

`footers` finds the row groups and every mistake that footers can tell; `table` keeps them; `parts`
joins small ones; `order` lays the row groups of an epoch out as one line of rows; `plan` cuts the
line into lanes and deals them to steps. The last three are pure functions from numbers to numbers.
"""

from distrain.partition.footers import PARQUET_SUFFIXES, read_footers
from distrain.partition.order import SHUFFLES, Chunk, Chunks, chunk_order, row_permutation
from distrain.partition.parts import Parts, parts_of
from distrain.partition.pieces import Piece, Pieces, lane_pieces
from distrain.partition.plan import EpochPlan
from distrain.partition.table import RowGroup, Table

__all__ = [
    "PARQUET_SUFFIXES",
    "RowGroup",
    "Table",
    "read_footers",
    "SHUFFLES",
    "Chunk",
    "Chunks",
    "chunk_order",
    "row_permutation",
    "Parts",
    "parts_of",
    "EpochPlan",
    "Piece",
    "Pieces",
    "lane_pieces",
]
