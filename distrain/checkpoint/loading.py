"""The newest checkpoint that is whole, loaded by all ranks together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from distrain.checkpoint.place import CheckpointPlace, Entry
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
        rank_tensors: For each rank that saved it, in order, the tensors that it handed in, on the
            CPU. Every rank gets all of them.
    """

    entry: Entry | None
    touched: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    rank_tensors: list[dict[str, Tensor]] = field(default_factory=list)


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
        DataError: The place or a file could not be read for reasons that may pass, such as a
            server that does not answer, or the saved tensors are not those of this model and its
            optimizers. The same on every rank.
    """
    raise NotImplementedError
