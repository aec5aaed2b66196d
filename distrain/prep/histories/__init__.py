"""Histories out of core: sorts the events of all rows, and finds each row's history among them.

The events of each part go to a file, sorted by key and time. Samples of these files determine cuts
of the order, such that the events between two cuts, from all files, fit into memory. These are
sorted, which gives each row the span of its history among all events. The events' values are in one
file per column, which workers map when they write rows. So a history takes the space of two numbers
until its row is written, for any length.
"""
