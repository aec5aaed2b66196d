"""The newest checkpoint that is whole, loaded by all ranks together."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from distrain.checkpoint.agreement import all_texts, on_one_line, together
from distrain.checkpoint.manifest import DAMAGED_FILE, MANIFEST_FILE, Damaged, from_document
from distrain.checkpoint.place import CheckpointPlace, Entry, entry_of
from distrain.checkpoint.reading import ShardReading
from distrain.checkpoint.state import TrainingState
from distrain.embeddings import Peers
from distrain.events import CheckpointTrouble


@dataclass(frozen=True)
class Loaded:
    """What `load_newest` found.

    Attributes:
        entry: The checkpoint that the state now is; `None` if there was none to use.
        touched: Without an entry: whether the state was overwritten by one that turned out to be
            damaged, so that the model and its optimizers must be built anew.
        values: What was saved with it.
        rank_tensors: By the rank that saved it, the tensors that it handed in, on the CPU. With as
            many ranks as saved it each gets its own; with another number rank `r` gets those of
            rank `r`, `r` + that number, and so on.
        saved_by: How many ranks saved it.
    """

    entry: Entry | None
    touched: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    rank_tensors: Mapping[int, dict[str, Tensor]] = field(default_factory=dict)
    saved_by: int = 0


def load_newest(
    place: CheckpointPlace,
    state: TrainingState,
    peers: Peers,
    *,
    accept: Callable[[Entry], None] | None = None,
    report: Callable[[CheckpointTrouble], None] | None = None,
    progress: Callable[[], None] | None = None,
) -> Loaded:
    """Load the first of `place.list()` that is whole; a collective operation.

    Ranks and placement may be others than those that saved it: every rank reads the rows that it
    holds. Checksums are verified while reading. If any rank finds damage, rank 0 reports it and
    sets the checkpoint aside, so that it is never gone on from, and all ranks load the next one.

    Args:
        place: Where they lie; the same on every rank.
        state: What to load into, on its device; the same model and optimizers on every rank.
        peers: This rank among the others.
        accept: Called on every rank before anything is changed; raises if this checkpoint must
            not be gone on from, and the same on every rank.
        report: Gets, on rank 0, what was found damaged.
        progress: Called after each slab of bytes that was read.

    Raises:
        Unavailable: The place or a file could not be read for reasons that may pass, such as a
            server that does not answer. The same on every rank, like what follows.
        DataError: The saved tensors are not those of this model and its optimizers.
    """
    loading = _Loading(place, state, peers, accept, report, progress or _nothing)
    return loading.run()


class _Loading:
    """One call of `load_newest` on one rank."""

    def __init__(
        self,
        place: CheckpointPlace,
        state: TrainingState,
        peers: Peers,
        accept: Callable[[Entry], None] | None,
        report: Callable[[CheckpointTrouble], None] | None,
        after_slab: Callable[[], None],
    ):
        self._place = place
        self._state = state
        self._peers = peers
        self._accept = accept
        self._report = report
        self._after_slab = after_slab
        self._begun = False

    def run(self) -> Loaded:
        """Try one after the other."""
        for name in self._names():
            try:
                return self._load(name)
            except Damaged as error:
                self._set_aside(name, error)
        touched = any(all_texts(self._peers, self._state.device, "begun" if self._begun else ""))
        return Loaded(None, touched)

    def _names(self) -> list[str]:
        """What rank 0 finds, on every rank."""
        found = ""
        with self._together():
            if self._peers.rank == 0:
                found = json.dumps([entry.name for entry in self._place.list()])
        for message in self._place.damaged if self._peers.rank == 0 else ():
            self._tell(message)
        names: list[str] = json.loads(all_texts(self._peers, self._state.device, found)[0])
        return names

    def _load(self, name: str) -> Loaded:
        """Load a checkpoint, or raise on every rank what any of them found."""
        with self._together():
            folder = self._place.folder(name)
            document = self._place.read_manifest(name)
            manifest = from_document(document, folder.url)
        entry = entry_of(name, folder.url, document)
        if self._accept is not None:
            self._accept(entry)
        self._state.check_fits(manifest.state, manifest.tensors, folder.url)
        tensors = self._state.tensors()
        rank, num_ranks = self._peers.rank, self._peers.num_ranks
        owned = range(rank, len(manifest.shards), num_ranks)
        reading = ShardReading(folder, manifest, tensors, rank, self._after_slab, owned)
        with self._together():
            lacking = manifest.lacking()
            if lacking:
                raise Damaged("not whole: " + "; ".join(lacking), where={"path": folder.url})
            reading.check()
        try:
            with self._together():
                rank_tensors = reading.run()
        finally:
            self._begun |= reading.begun
        self._state.adopt(manifest.state)
        saved_by = len(manifest.shards)
        return Loaded(entry, values=manifest.values, rank_tensors=rank_tensors, saved_by=saved_by)

    def _together(self) -> contextlib.AbstractContextManager[None]:
        return together(self._peers, self._state.device, self._place.url)

    def _set_aside(self, name: str, error: Damaged) -> None:
        if self._peers.rank != 0:
            return
        folder = self._place.folder(name)
        self._tell(f"the checkpoint {folder.url} was left aside: {on_one_line(error)}")
        # Where nothing may be written, it is found damaged once more the next time.
        with contextlib.suppress(OSError):
            folder.rename(MANIFEST_FILE, DAMAGED_FILE)

    def _tell(self, message: str) -> None:
        if self._report is not None:
            self._report(CheckpointTrouble(self._peers.rank, message))


def _nothing() -> None:
    pass
