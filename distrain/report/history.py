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
            The records that are new, and whether earlier ones no longer count: then, none.
        """
        before = list(self.records)
        went_back = False
        for entry in entries:
            if isinstance(entry, Resumed):
                went_back = True
                self._go_back(entry.step)
            elif isinstance(entry, Record):
                self._add(entry)
        rewound = went_back and self.records[: len(before)] != before
        return ([] if rewound else self.records[len(before) :]), rewound

    def _go_back(self, step: int) -> None:
        self.records = [record for record in self.records if record.step <= step]
        self._known = {(record.split, record.step) for record in self.records}

    def _add(self, record: Record) -> None:
        # A report that is due at the very step of a checkpoint may come twice: before it was
        # known to be whole, and again from the attempt that went on from it.
        if (record.split, record.step) not in self._known:
            self._known.add((record.split, record.step))
            self.records.append(record)


def completed(recorded: Iterable[Record], replayed: Iterable[Iterable[Entry]]) -> list[Record]:
    """The records of a run with those that were reported, but that nobody lived to record.

    Args:
        recorded: What was recorded.
        replayed: The progress of each attempt, made again from kept reports, the oldest first.

    Returns:
        In order. Records after the step that the next attempt goes on from may be of attempts that
        do not count; that attempt takes them back.
    """
    history = History()
    for progress in replayed:
        history.add(progress)
    found = {(r.step, r.split): r for r in (*recorded, *history.records)}
    return [found[key] for key in sorted(found)]  # `train` before `valid`
