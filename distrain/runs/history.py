"""Keeps a run's records, except those of steps that a later attempt repeats; no I/O."""

from collections.abc import Iterable

from distrain.jobs.job_view import AttemptStarted, Entry, Record


class History:
    """Collects the entries of a run, attempt by attempt, and keeps their records in order.

    An `AttemptStarted` removes the records of steps after the one at which the attempt starts.
    """

    def __init__(self, entries: Iterable[Entry] = ()):
        self._records: dict[tuple[object, ...], Record] = {}
        self.add(entries)

    @property
    def records(self) -> list[Record]:
        return list(self._records.values())

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, AttemptStarted):
                kept = self._records.items()
                self._records = {key: one for key, one in kept if one.step <= entry.step}
            elif isinstance(entry, Record):
                # A report due at exactly the step of a checkpoint may be sent twice: before the
                # checkpoint is complete, and by the attempt that resumes from it.
                self._records.setdefault((entry.step, entry.split, entry.window), entry)
