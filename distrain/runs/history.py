"""The records of a run that count: not those of steps that a later attempt took again. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from distrain.jobs.view import AttemptStarted, Entry, Record

Key = tuple[int, str]


class History:
    """A run's records in order, without those that a later attempt replaced.

    `resumed` has, by attempt that has begun to train, the step at which it began; it grows with
    `add`.
    """

    def __init__(self, records: Iterable[Record] = (), resumed: Mapping[int, int] | None = None):
        self.records: list[Record] = []
        self._known: set[Key] = set()
        self.resumed = dict(resumed or {})
        for record in records:
            self._add(record)
        self._begun = _first_steps(self.records)

    def add(self, entries: Iterable[Entry]) -> tuple[list[Record], bool]:
        """Take in entries; returns the new records, or none and `True` if old ones were dropped."""
        before = list(self.records)
        went_back = False
        for entry in entries:
            if isinstance(entry, AttemptStarted):
                went_back = True
                self._go_back(entry)
            elif isinstance(entry, Record):
                self._add(entry)
        rewound = went_back and self.records[: len(before)] != before
        return ([] if rewound else self.records[len(before) :]), rewound

    def complete(self, replayed: Iterable[Entry]) -> None:
        """Merge the replayed entries of the whole run, attempt by attempt, with the records.

        Where a replayed record joins several reports, the finer ones stay.
        """
        merged = {_key(record): record for record in self.records}
        for entry in replayed:
            if isinstance(entry, AttemptStarted):
                self.resumed[entry.attempt] = entry.step
                # Records of old files have no attempt, and their writer kept only those that count.
                merged = {
                    key: record
                    for key, record in merged.items()
                    if record.step <= entry.step or not 0 < record.attempt < entry.attempt
                }
            elif isinstance(entry, Record) and self._counts(entry):
                earlier = merged.get(_key(entry))
                if self._is_redone(entry, earlier):
                    continue
                merged[_key(entry)] = entry if earlier is None else _better(earlier, entry)
        self.records = [merged[key] for key in sorted(merged)]  # `train` before `valid`
        self._known = set(merged)

    def _go_back(self, entry: AttemptStarted) -> None:
        self.resumed[entry.attempt] = entry.step
        self.records = [
            record
            for record in self.records
            if record.step <= entry.step or (0 < entry.attempt <= record.attempt)
        ]
        self._known = {_key(record) for record in self.records}

    def _add(self, record: Record) -> None:
        # A report that is due at the very step of a checkpoint may come twice: before it was
        # known to be whole, and again from the attempt that went on from it.
        if _key(record) not in self._known and self._counts(record):
            self._known.add(_key(record))
            self.records.append(record)

    def _counts(self, record: Record) -> bool:
        """Whether no later attempt took it back."""
        if not record.attempt:
            return True
        return all(
            record.step <= step
            for attempt, step in self.resumed.items()
            if attempt > record.attempt
        )

    def _is_redone(self, record: Record, earlier: Record | None) -> bool:
        """Whether a later attempt took that step again, judged by its first known record.

        Its start is not among the replayed entries if its reports were not kept.
        """
        if not record.attempt:
            return False
        later = {
            attempt: step
            for attempt, step in self._begun.items()
            if attempt > record.attempt and attempt not in self.resumed
        }
        by_known = earlier is not None and earlier.attempt in later
        return by_known or any(record.step > step for step in later.values())


def _first_steps(records: Iterable[Record]) -> dict[int, int]:
    steps: dict[int, int] = {}
    for record in records:
        if record.attempt:
            steps[record.attempt] = min(record.step, steps.get(record.attempt, record.step))
    return steps


def _key(record: Record) -> Key:
    return record.step, record.split


def _better(one: Record, other: Record) -> Record:
    """Of two records that count, the finer one; of equals, that of the earlier attempt."""
    if not one.attempt:
        return other if other.reports == 1 else one
    if other.reports != one.reports:
        return min(one, other, key=lambda record: record.reports)
    return min(one, other, key=lambda record: record.attempt)


class Followed:
    """Passes each entry of a run on once, in order; `records` were passed on before."""

    def __init__(self, records: Iterable[Record] = ()):
        self._attempt = 0
        self._steps: dict[str, int] = {}
        self._passes = True  # whether the last entry was new, and with it the notices behind it
        self.new(records)

    def new(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries that were not passed on yet."""
        self._passes = True
        return [entry for entry in entries if self._take(entry)]

    def made_again(self, entries: Iterable[Entry], missed: list[Entry]) -> Iterator[Entry]:
        """Yield replayed entries, and append those to `missed` that were not passed on yet.

        A notice is new if the entry before it is.
        """
        self._passes = False
        for entry in entries:
            if self._take(entry):
                missed.append(entry)
            yield entry

    def _take(self, entry: Entry) -> bool:
        if isinstance(entry, AttemptStarted):
            self._passes = entry.attempt > self._attempt
            if self._passes:
                self._attempt = entry.attempt
                self._steps = {s: min(at, entry.step) for s, at in self._steps.items()}
        elif isinstance(entry, Record):
            self._passes = self._is_new(entry)
        return self._passes

    def _is_new(self, record: Record) -> bool:
        if record.attempt:
            if record.attempt < self._attempt:
                return False
            self._attempt = record.attempt
        if record.step <= self._steps.get(record.split, -1):
            return False
        self._steps[record.split] = record.step
        return True
