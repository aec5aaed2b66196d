"""Checkpoints written by all ranks together, mostly while they train on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from distrain.checkpoint.board import Board
from distrain.checkpoint.place import CheckpointPlace
from distrain.checkpoint.state import TrainingState
from distrain.embeddings import Peers
from distrain.events import CheckpointSaved, CheckpointTrouble

PATIENCE_S = 600.0
"""How long ranks wait for each other's files before a checkpoint is given up."""


@dataclass(frozen=True)
class Saved:
    """What a call of `save` did.

    Attributes:
        stood_still_s: How long it kept this rank from training.
        whole: Whether the checkpoint is whole now; `None` if it is still being written.
    """

    stood_still_s: float
    whole: bool | None


class CheckpointWriter:
    """Writes a training's checkpoints; one object on every rank.

    Each rank writes a file with the rows that it alone holds and its share of the rest. Rank 0
    then writes the manifest, which makes the checkpoint one, and removes older ones. If any rank
    could not write, what the others wrote is removed, `report` hears of it on rank 0, and
    training goes on: nothing here raises for a disk that is full or a server that is gone.

    Args:
        place: Where to write.
        state: What to save.
        peers: This rank among the others; no collective operation is done.
        board: On which they tell each other what they wrote.
        keep: How many of the newest checkpoints are kept.
        keep_best: Whether the one of the best AUC is kept besides.
        asynchronous: Whether a thread writes, from a copy, while training goes on.
        report: Gets `CheckpointSaved` and `CheckpointTrouble` on rank 0, maybe from that thread.
        progress: Called after each slab of bytes that was copied or written, by whoever did it.
        patience_s: How long to wait for the other ranks' files.
    """

    def __init__(
        self,
        place: CheckpointPlace,
        state: TrainingState,
        peers: Peers,
        board: Board,
        *,
        keep: int,
        keep_best: bool = False,
        asynchronous: bool = True,
        report: Callable[[CheckpointSaved | CheckpointTrouble], None] | None = None,
        progress: Callable[[], None] | None = None,
        patience_s: float = PATIENCE_S,
    ):
        raise NotImplementedError

    def save(
        self,
        step: int,
        attempt: int,
        values: Mapping[str, Any],
        rank_tensors: Mapping[str, Tensor],
        auc: float | None = None,
        *,
        wait: bool = False,
    ) -> Saved:
        """Save the state as it is now; every rank calls it at the same steps, in the same order.

        Asynchronous: what this rank has to write is copied, and a thread writes the copy; the
        tensors may change as soon as this returns. One that is still being written is waited for
        first. Otherwise, or with `wait`, it is written straight from the live tensors, and this
        returns when it is whole on all ranks, or has failed.

        A step that this writer has saved already is not written again; with `wait`, it is waited
        for.

        Args:
            step: Steps taken since the start of the job.
            attempt: The job's attempt.
            values: What else to keep, as JSON values; those of rank 0 are saved.
            rank_tensors: Small tensors that each rank has its own of, by name.
            auc: Of the validation rows at this step; rank 0's is saved.
            wait: Whether to return only when it is whole.
        """
        raise NotImplementedError

    def wait(self, timeout_s: float = PATIENCE_S) -> bool | None:
        """Wait for what is being written.

        Returns:
            Whether the last checkpoint is whole; `None` if there was none, or it is still being
            written after `timeout_s` seconds.
        """
        raise NotImplementedError

    def close(self, timeout_s: float = 5.0) -> None:
        """End: finish what only waits for the disk, give up what waits for other ranks.

        Returns after `timeout_s` seconds at the latest. `wait` first if it should be finished.
        """
        raise NotImplementedError
