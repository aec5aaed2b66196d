"""At the end of a training, its model goes back to the best validation."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from distrain.checkpoint import CheckpointPlace
from distrain.checkpoint.agreement import all_texts, on_one_line, together
from distrain.checkpoint.retention import entry_of_step
from distrain.checkpoint.weights import WeightsReading
from distrain.embeddings import Peers
from distrain.errors import DataError, DistrainError
from distrain.models import ClickModel


class BestWeights:
    """Reads weights of earlier steps back into a model; every rank has one and calls it alike.

    The model's own tensors take them, slab by slab, so no memory for a second model is needed.

    Args:
        place: Where the training's checkpoints lie.
        model: What was trained.
        device: Where the ranks' backend wants tensors.
        tell: Told, on rank 0, what people should know.
        after_slab: Called after each slab that was read.
    """

    def __init__(
        self,
        place: CheckpointPlace,
        model: ClickModel,
        device: torch.device,
        tell: Callable[[str], None],
        after_slab: Callable[[], None],
    ):
        self._place = place
        self._model = model
        self._device = device
        self._tell = tell
        self._after_slab = after_slab
        self._peers: Peers = model.embeddings.peers

    def read(self, best_step: int, last_step: int) -> int:
        """Give the model the weights of the best step; a collective operation.

        If they cannot be read, the model keeps those of the last step, and that is told.

        Args:
            best_step: Steps of training at the best validation.
            last_step: Steps that were taken.

        Returns:
            The step of the weights that the model has.

        Raises:
            DistrainError: The best weights turned out damaged while they were read, and those of
                the last step cannot be read either.
        """
        begun = False
        try:
            reading = self._opened(best_step)
            begun = True
            with self._together():
                reading.run()
        except DistrainError as error:
            if self._peers.rank == 0:
                self._tell(
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
                entry = entry_of_step(self._place.list(), step)
                if entry is None:
                    raise DataError("no such checkpoint", where={"place": self._place.url})
                found = entry.name
        name = all_texts(self._peers, self._device, found)[0]
        with self._together():
            reading = WeightsReading(self._place, name, self._model, self._peers, self._after_slab)
            reading.check()
        return reading

    def _together(self) -> AbstractContextManager[None]:
        return together(self._peers, self._device, self._place.url)
