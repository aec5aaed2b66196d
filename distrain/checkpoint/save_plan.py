"""What a checkpoint is to be, and what all of a rank's checkpoints have in common."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distrain.checkpoint.board import Board
from distrain.checkpoint.manifest import TensorFacts
from distrain.checkpoint.place import CheckpointPlace
from distrain.embeddings import Peers
from distrain.events import CheckpointSaved, CheckpointTrouble

Report = Callable[[CheckpointSaved | CheckpointTrouble], None]


@dataclass(frozen=True)
class Setting:
    """What all checkpoints of a rank have in common; see `CheckpointWriter`."""

    place: CheckpointPlace
    peers: Peers
    board: Board
    keep: int
    report: Report
    progress: Callable[[], None]
    patience_s: float
    given_up: threading.Event


@dataclass(frozen=True)
class Plan:
    """What one checkpoint is.

    Attributes:
        name: Of its folder.
        number: Which one of this writer's it is, from 1.
        step: Steps that it holds.
        attempt: Of the job.
        auc: Of the validation rows, if they were scored.
        values: The training's JSON values.
        state: What the `TrainingState` says beside its tensors.
        tensors: Of each tensor dtype and shape.
        best_step: The step of a checkpoint that is kept besides the newest.
    """

    name: str
    number: int
    step: int
    attempt: int
    auc: float | None
    values: Mapping[str, Any]
    state: Mapping[str, Any]
    tensors: Mapping[str, TensorFacts]
    best_step: int | None = None

    @property
    def written_key(self) -> str:
        """The key under which all ranks but the first add what they wrote."""
        return f"checkpoint/{self.number}/{self.name}/written"

    @property
    def all_told_key(self) -> str:
        """The key under which the last of them posts that all have."""
        return f"checkpoint/{self.number}/{self.name}/all-told"

    @property
    def outcome_key(self) -> str:
        """The key under which rank 0 posts how it ended."""
        return f"checkpoint/{self.number}/{self.name}/outcome"
