"""Counts values out of core, in time proportional to the number of rows.

A task counts the values of some parts (`spilled`). It writes the counts of a column to files, each
sorted by buckets of a hash of the values. When all parts are counted, the buckets of a column are
divided into pieces of bounded size. A piece has all counts of its values, so pieces are added up
independently, and one task for each column writes the pieces' results (`count_tasks`). For a
vocabulary, these are the values that pass the thresholds, in the order of the ids
(`vocabulary_runs`, `vocabularies`). For counts and target means, they are each value's counts and
sums of labels, by fold (`count_tables`). An existing vocabulary is updated in
`distrain.prep.updates`.
"""
