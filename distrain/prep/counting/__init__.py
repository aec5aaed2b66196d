"""Values counted out of core, in time that grows as the rows do.

A task counts the values of some parts (`spilling`). What it holds of a column goes to a file when
it is much, sorted by buckets of a hash of the values. When all parts are counted, the buckets of a
column are cut into pieces of bounded size; a piece has all that was counted of its values, so each
is added up by itself (`etl/days`). What passes the thresholds goes to a file in the order of the
ids, and one task reads these files side by side and writes the vocabulary (`ordering`).
"""
