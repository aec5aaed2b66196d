"""A refit: the job trains again from the start, on training and validation rows together.

Its steps continue the numbering of the first training, so records, curves and checkpoints stay in
order. Its checkpoints are stored beside those of the first training and are marked as a refit's: an
interrupted job resumes the training that its newest checkpoint belongs to.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from distrain.models.embeddings.peers import Peers, gather_texts
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, CheckpointEntry
from distrain.train.checkpoint.rank_store import fail_on_all_ranks
from distrain.train.loop.early_stopping import Validations


@dataclass(frozen=True)
class Refit:
    """The results of the first training that a refit needs."""

    taken: int  # steps of the first training
    elapsed_s: float  # its wall time
    validations: Validations | None = None

    @property
    def found(self) -> int:
        """The number of steps before the best validation; without a validation, all steps."""
        best = None if self.validations is None else self.validations.best_step
        return self.taken if best is None else best

    def to_json(self) -> dict[str, Any]:
        return {"taken": self.taken, "elapsed_s": self.elapsed_s}

    @classmethod
    def of_checkpoint(cls, values: Mapping[str, Any]) -> "Refit | None":
        """Return the refit to which a checkpoint belongs; `None` if it is of the first training.

        `values` are the values in its manifest.
        """
        if values.get("refit") is None:
            return None
        saved = values["validations"]
        return cls(**values["refit"], validations=None if saved is None else Validations(**saved))


def is_of(entry: CheckpointEntry, *, refit: bool) -> bool:
    """Return True if a checkpoint is of a refit or, if `refit` is false, of a first training."""
    return (entry.values.get("refit") is not None) == refit


def find_refit(directory: CheckpointDir, peers: Peers, device: torch.device) -> Refit | None:
    """Return the refit to which the newest checkpoint belongs; a collective operation.

    Returns `None` if it belongs to the first training, or there is no checkpoint.
    """
    text = "{}"
    with fail_on_all_ranks(peers, device, directory.url):
        if peers.rank == 0:
            values = next((entry.values for entry in directory.list()), {})
            text = json.dumps({name: values.get(name) for name in ("refit", "validations")})
    return Refit.of_checkpoint(json.loads(gather_texts(peers, device, text)[0]))
