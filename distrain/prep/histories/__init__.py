"""Histories out of core: sorts the events of all rows, and finds each row's history among them.

Each row is an event for later rows with the same key (see `History`). The events of each part are
written to a file, sorted by key and time. Samples of these files determine cuts of the sort order,
such that the events between two cuts, from all files, fit into memory. Sorting these events gives
each row the span of its history among all events. The events' values are in one file per column,
which workers map into memory when they write rows. So a history of any length takes the space of
two numbers until its row is written.
"""
