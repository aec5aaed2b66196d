"""Histories out of core: the events of all rows in order, and where each row's lie among them.

The events of each part go to a file, sorted by key and time. Samples of these files say where to
cut the order, so that what lies between two cuts, of all files together, fits into memory. It is
brought in order, and says of each row which places its history has among all events. Their values
lie in one file per column, which workers map when they write rows. So a history takes the space of
two numbers until its row is written, however long it is.
"""
