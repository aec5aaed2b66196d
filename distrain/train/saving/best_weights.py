"""At the end of a training, its model goes back to the best validation."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from distrain.checkpoint import (
    CheckpointDir,
    WeightsReading,
    entry_of_step,
    fail_together,
    gather_texts,
    on_one_line,
)
from distrain.embeddings import Peers
from distrain.errors import DataError, DistrainError
from distrain.models import ClickModel


@dataclass(frozen=True)
class BestWeights:
    """Reads weights of earlier steps into a model, slab by slab, on every rank alike."""

    directory: CheckpointDir
    model: ClickModel
    device: torch.device
    warn: Callable[[str], None]
    after_slab: Callable[[], None]

    @property
    def _peers(self) -> Peers:
        return self.model.embeddings.peers

    def read(self, best_step: int, last_step: int) -> int:
        """Read the weights of the best step; returns the step of the model's weights now.

        A collective operation. If they cannot be read, the model keeps those of the last
        step, and rank
        0 warns.

        Raises:
            DistrainError: The best weights turned out damaged while they were read, and
                those of the last
                step cannot be read either.
        """
        begun = False
        try:
            reading = self._opened(best_step)
            begun = True
            with self._together():
                reading.run()
        except DistrainError as error:
            if self._peers.rank == 0:
                self.warn(
                    f"the weights of the best validation, at step {best_step}, cannot be read: "
                    f"{on_one_line(error)}. The model that is saved is that of the last step, "
                    f"{last_step}."
                )
            if begun:
                last = self._opened(last_step)
                with self._together():
                    last.run()
            return last_step
        return best_step

    def _opened(self, step: int) -> WeightsReading:
        """The checkpoint of a step, whose files are there; raises the same on every rank."""
        found = ""
        with self._together():
            if self._peers.rank == 0:
                entry = entry_of_step(self.directory.list(), step)
                if entry is None:
                    raise DataError("no such checkpoint", where={"place": self.directory.url})
                found = entry.name
        name = gather_texts(self._peers, self.device, found)[0]
        with self._together():
            reading = WeightsReading(self.directory, name, self.model, self._peers, self.after_slab)
            reading.check()
        return reading

    def _together(self) -> AbstractContextManager[None]:
        return fail_together(self._peers, self.device, self.directory.url)
