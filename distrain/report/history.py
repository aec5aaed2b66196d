"""The history of a run that counts: not what an attempt did after its last checkpoint. Pure."""

from collections.abc import Iterable, Iterator

from distrain.coordinator.view import Entry, Record, Resumed

Key = tuple[int, str]


class History:
    """Records in order, without those that an attempt took back by going on from before them.

    Args:
        records: Those of earlier attempts.
    """

    def __init__(self, records: Iterable[Record] = ()):
        self.records: list[Record] = []
        self._known: set[Key] = set()
        self._resumed: dict[int, int] = {}  # attempts that began to train, and at which step
        for record in records:
            self._add(record)
        self._begun = _first_steps(self.records)

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
                self._go_back(entry)
            elif isinstance(entry, Record):
                self._add(entry)
        rewound = went_back and self.records[: len(before)] != before
        return ([] if rewound else self.records[len(before) :]), rewound

    def complete(self, told: Iterable[Entry]) -> None:
        """Take in what was told of the whole run, of which some was known already.

        Afterwards the records are those of somebody who missed nothing, as far as `told` goes, and
        finer where they were known and what is told holds several of them in one.

        Args:
            told: Attempt by attempt, in order; each begins with its `Resumed`.
        """
        found = {_key(record): record for record in self.records}
        for entry in told:
            if isinstance(entry, Resumed):
                self._resumed[entry.attempt] = entry.step
                # Records of files without attempts stay: who told of them saw what counted.
                found = {
                    key: record
                    for key, record in found.items()
                    if record.step <= entry.step or not 0 < record.attempt < entry.attempt
                }
            elif isinstance(entry, Record) and self._counts(entry):
                known = found.get(_key(entry))
                if self._is_redone(entry, known):
                    continue
                found[_key(entry)] = entry if known is None else _better(known, entry)
        self.records = [found[key] for key in sorted(found)]  # `train` before `valid`
        self._known = set(found)

    def _go_back(self, entry: Resumed) -> None:
        """What older attempts did after that step counts no more, and this one's comes anew."""
        self._resumed[entry.attempt] = entry.step
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
        """Whether no later attempt that is known of took it back."""
        if not record.attempt:
            return True
        return all(
            record.step <= step
            for attempt, step in self._resumed.items()
            if attempt > record.attempt
        )

    def _is_redone(self, record: Record, known: Record | None) -> bool:
        """Whether an attempt took that step again of which only the records are known.

        Where it began, nobody tells any more if its reports were not kept.
        """
        if not record.attempt:
            return False
        later = {
            attempt: step
            for attempt, step in self._begun.items()
            if attempt > record.attempt and attempt not in self._resumed
        }
        by_known = known is not None and known.attempt in later
        return by_known or any(record.step > step for step in later.values())


def _first_steps(records: Iterable[Record]) -> dict[int, int]:
    """Per attempt, the first step that it has a record of."""
    steps: dict[int, int] = {}
    for record in records:
        if record.attempt:
            steps[record.attempt] = min(record.step, steps.get(record.attempt, record.step))
    return steps


def _key(record: Record) -> Key:
    return record.step, record.split


def _better(known: Record, told: Record) -> Record:
    """Of two that count, the finer one; then that of the earlier attempt, which came first."""
    if not known.attempt:
        return told if told.reports == 1 else known
    if told.reports != known.reports:
        return min(known, told, key=lambda record: record.reports)
    return min(known, told, key=lambda record: record.attempt)


class Followed:
    """How far the entries of a run were passed on, so that each is passed on once, in order.

    Args:
        records: What was passed on before.
    """

    def __init__(self, records: Iterable[Record] = ()):
        self._attempt = 0
        self._steps: dict[str, int] = {}
        self._passes = True  # whether the last entry was new, and with it the notices behind it
        self.new(records)

    def new(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those that were not passed on yet."""
        self._passes = True
        return [entry for entry in entries if self._take(entry)]

    def made_again(self, entries: Iterable[Entry], missed: list[Entry]) -> Iterator[Entry]:
        """Let entries through that begin with what may have been passed on.

        Args:
            entries: In order.
            missed: Gets those that were not passed on yet, and notices that stand behind one.
        """
        self._passes = False
        for entry in entries:
            if self._take(entry):
                missed.append(entry)
            yield entry

    def _take(self, entry: Entry) -> bool:
        if isinstance(entry, Resumed):
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
