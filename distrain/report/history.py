"""The history of a run that counts: not what an attempt did after its last checkpoint. Pure."""

from collections.abc import Iterable

from distrain.coordinator.view import Entry, Record, Resumed


class History:
    """Records in order, without those that an attempt took back by going on from before them.

    Args:
        records: Those of earlier attempts.
    """

    def __init__(self, records: Iterable[Record] = ()):
        self.records: list[Record] = []
        self._known: set[tuple[str, int]] = set()
        for record in records:
            self._add(record)

    def add(self, entries: Iterable[Entry]) -> tuple[list[Record], bool]:
        """Take in what happened.

        Returns:
            The records that are new and count, and whether earlier ones no longer do.
        """
        length_before = shortest = len(self.records)
        for entry in entries:
            if isinstance(entry, Resumed):
                self._go_back(entry.step)
                shortest = min(shortest, len(self.records))
            elif isinstance(entry, Record):
                self._add(entry)
        return self.records[shortest:], shortest < length_before

    def _go_back(self, step: int) -> None:
        self.records = [record for record in self.records if record.step <= step]
        self._known = {(record.split, record.step) for record in self.records}

    def _add(self, record: Record) -> None:
        # A report that is due at the very step of a checkpoint may come twice: before it was
        # known to be whole, and again from the attempt that went on from it.
        if (record.split, record.step) not in self._known:
            self._known.add((record.split, record.step))
            self.records.append(record)
