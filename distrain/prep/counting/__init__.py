"""Values counted out of core, in time that grows as the rows do.

A task counts the values of some parts (`spilled`). What it holds of a column goes to a file when it
is much, sorted by buckets of a hash of the values. When all parts are counted, the buckets of a
column are cut into pieces of bounded size; a piece has all that was counted of its values, so each
is added up by itself, and one task writes what the pieces gave (`pieces`). For a vocabulary that is
what passes the thresholds, in the order of the ids (`runs`, `vocabularies`); for counts and target
means it is each value with its folds (`tables`). A vocabulary that exists already is updated in
`distrain.prep.updates`.
"""
