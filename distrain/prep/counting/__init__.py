"""Counts values out of core, in time proportional to the number of rows.

A task counts the values of some parts (`spilled`). Large counts of a column are written to a file,
sorted by buckets of a hash of the values. When all parts are counted, the buckets of a column are
divided into pieces of bounded size. A piece has all counts of its values, so pieces are added up
independently, and one task writes their results (`count_tasks`). For a vocabulary, the results are
the values that pass the thresholds, in the order of the ids (`vocabulary_runs`, `vocabularies`);
for counts and target means, each value with its folds (`count_tables`). An existing vocabulary is
updated in `distrain.prep.updates`.
"""
