"""Reads and writes run folders: records and summaries, reports on runs, and sinks for records.

Words that the modules of this package share:

- *record*: the metrics of one progress report or validation; *entry*: a record, the start of an
  attempt, or a notice.
- *submission*: one hand-over of a job to a scheduler, or one call that trains in its process. Each
  resumption of a run is a further submission, whose attempts have higher numbers.
- *view*: a job's state and progress at a time (`JobView`).
- *gap*: bytes of a very long log that were removed.
"""
