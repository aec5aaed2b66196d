"""Turns parquet footers into lanes: which rows each rank trains on at each step of an epoch.

`footers` finds the row groups and checks all that footers show, and `windows` says which of them
are trained before which; `table` keeps them, `selection` which of their rows are taken, such as
those of a filter (`filtering`) or most with label 0 (`thinning`); `slices` cuts large ones; `order`
joins small ones to parts and lays the row groups of an epoch out as one line of rows; `plan` cuts
the line into lanes and deals them to steps, `pieces` says which chunks a lane goes through, which
`dealing` decides where there are slices. The last four are pure functions of numbers.
"""

from distrain.partition.dealing import num_bands as num_bands
from distrain.partition.footers import (
    PARQUET_SUFFIXES as PARQUET_SUFFIXES,
    read_footers as read_footers,
)
from distrain.partition.lazy_sequence import LazySequence as LazySequence
from distrain.partition.order import (
    ORDER_IS_BUILT as ORDER_IS_BUILT,
    SHUFFLES as SHUFFLES,
    Chunk as Chunk,
    Chunks as Chunks,
    Parts as Parts,
    chunk_order as chunk_order,
    key_order as key_order,
    parts_of as parts_of,
    row_keys as row_keys,
    row_order as row_order,
    row_permutation as row_permutation,
    sliced_order as sliced_order,
)
from distrain.partition.pieces import (
    Piece as Piece,
    Pieces as Pieces,
    forward_pieces as forward_pieces,
    lane_pieces as lane_pieces,
)
from distrain.partition.plan import EpochPlan as EpochPlan, EpochSteps as EpochSteps
from distrain.partition.scanning import (
    Columns as Columns,
    column_moments as column_moments,
    sampled_groups as sampled_groups,
    scan_columns as scan_columns,
)
from distrain.partition.selection import Selection as Selection
from distrain.partition.slices import LARGE_ROWS as LARGE_ROWS, Slices as Slices
from distrain.partition.table import (
    RowGroup as RowGroup,
    Slice as Slice,
    Table as Table,
    Windows as Windows,
)
from distrain.partition.thinning import thinned as thinned
from distrain.partition.wanted_columns import (
    FILL_HINT as FILL_HINT,
    WantedColumn as WantedColumn,
    column_of_leaf as column_of_leaf,
    type_problem as type_problem,
    value_problem as value_problem,
    wanted_columns as wanted_columns,
)
