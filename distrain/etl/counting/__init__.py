"""Values counted out of core, in time that grows as the rows do.

A task counts the values of some parts (`spilling`). What it holds of a column goes to a file when
it is much, sorted by buckets of a hash of the values. When all parts are counted, the buckets of a
column are cut into pieces of bounded size; a piece has all that was counted of its values, so each
is added up by itself (`etl/days`). What passes the thresholds goes to a file in the order of the
ids, and one task reads these files side by side and writes the vocabulary (`ordering`).
"""

from distrain.etl.counting.spilling import (
    Counted as Counted,
    MappedFile as MappedFile,
    MappedTable as MappedTable,
    MemoryPlan as MemoryPlan,
    Run as Run,
    RunsInOrder as RunsInOrder,
    count_values as count_values,
    pieces_of as pieces_of,
    plan_memory as plan_memory,
    read_counts as read_counts,
    read_counts_table as read_counts_table,
    write_counts as write_counts,
    write_run as write_run,
)
