"""The records of a run that count: not those of steps that a later attempt took again. Pure."""

from collections.abc import Iterable

from distrain.jobs.view import AttemptStarted, Entry, Record


class History:
    """Takes in the entries of a run, attempt by attempt, and keeps the records that count."""

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
                # A report that is due at the very step of a checkpoint may come twice: before the
                # checkpoint was known to be whole, and from the attempt that resumed from it.
                self._records.setdefault((entry.step, entry.split, entry.window), entry)
