"""At the end of a training, its model goes back to the best validation."""

from collections.abc import Callable
from functools import partial

import torch

from distrain.checkpoint import (
    CheckpointDir,
    WeightsReading,
    entry_of_step,
    fail_together,
    gather_texts,
    on_one_line,
)
from distrain.errors import DataError, DistrainError
from distrain.models import ClickModel


def read_best_weights(
    directory: CheckpointDir,
    model: ClickModel,
    device: torch.device,
    best_step: int,
    last_step: int,
    warn: Callable[[str], None],
    after_slab: Callable[[], None],
) -> int:
    """Read the weights of the best step; returns the step of the model's weights now.

    A collective operation. If they cannot be read, the model keeps those of the last step, and rank
    0 warns.
    """
    peers = model.embeddings.peers
    together = partial(fail_together, peers, device, directory.url)

    def opened(step: int) -> WeightsReading:
        found = ""
        with together():
            if peers.rank == 0:
                entry = entry_of_step(directory.list(), step)
                if entry is None:
                    raise DataError("no such checkpoint", where={"place": directory.url})
                found = entry.name
        name = gather_texts(peers, device, found)[0]
        with together():
            reading = WeightsReading(directory, name, model, peers, after_slab)
            reading.check()
        return reading

    begun = False
    try:
        reading = opened(best_step)
        begun = True
        with together():
            reading.run()
    except DistrainError as error:
        if peers.rank == 0:
            warn(
                f"the weights of the best validation, at step {best_step}, cannot be read: "
                f"{on_one_line(error)}. The model that is saved is that of the last step, "
                f"{last_step}."
            )
        if begun:
            last = opened(last_step)
            with together():
                last.run()
        return last_step
    return best_step
