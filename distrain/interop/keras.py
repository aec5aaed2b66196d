"""Adapts the loader to Keras 3's `fit`, `evaluate` and `predict`, with Keras on torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from distrain.errors import SpecError
from distrain.interop.named_inputs import NamedInputs
from distrain.loader.delivery.epoch import EpochIterator
from distrain.loader.loader import Loader
from distrain.loader.options import whole_number


class KerasDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """A loader as a Keras dataset; each epoch of Keras is an epoch of the loader.

        os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported
        train = KerasDataset(Loader(Dataset("criteo/train"), batch_size=65536))
        valid = KerasDataset(Loader(Dataset("criteo/valid"), batch_size=65536, shuffle="none"))
        model.fit(train, validation_data=valid, epochs=2)

    Every epoch of `fit` is the loader's next epoch, in another order, with the loader's number of
    steps and its smaller last batch. The loader's threads read ahead and end with the epoch.
    `fit(shuffle=True)`, Keras' default, has no effect: batches come in the loader's order, and the
    loader shuffles rows. To build a model, Keras reads a batch before the first epoch, which
    consumes an epoch number.

    Args:
        loader: The loader to read; it is not changed. The attribute `loader` is a copy that yields
            named inputs: its `stats` count what Keras has read. Its first epoch is number 0.
        inputs: `"columns"`: a dict of `[rows]` by column name, for inputs of shape `()` or `(1,)`;
            `"matrices"`: `{"categorical": [rows, columns], "continuous": [rows, columns]}`.
        list_lengths: One length for all list columns, or a length by column name; their inputs are
            `[rows, length]`. The default is the schema's maximum length.

    Raises:
        SpecError: Keras runs on another backend, or the inputs cannot be made; see `NamedInputs`.
    """

    def __init__(
        self,
        loader: Loader,
        *,
        inputs: str = "columns",
        list_lengths: int | Mapping[str, int] | None = None,
    ):
        super().__init__()  # one worker: the loader has threads of its own
        if keras.backend.backend() != "torch":
            raise SpecError(
                f"Keras runs on {keras.backend.backend()}, but batches are torch tensors",
                hint='Set KERAS_BACKEND=torch in the environment before "import keras".',
            )
        self.loader = loader.map(NamedInputs.of(loader.dataset, inputs, list_lengths))
        self._next_epoch = 0
        self._running: EpochIterator | None = None
        self._num_given = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return the next batch; `index` is ignored.

        After the last batch of an epoch, the next epoch begins.

        Returns:
            `(inputs, target)`; `(inputs,)` without a target; `(inputs, target, weight)` with a
            weight.
        """
        if self._running is None:
            self._running = self.loader.epoch(self._next_epoch)
            self._next_epoch += 1
        item: tuple[Any, ...] = next(self._running)
        self._num_given += 1
        if self._num_given == len(self.loader):
            self._leave_epoch()
        return item

    def on_epoch_begin(self) -> None:
        """End an epoch that was interrupted."""
        self._leave_epoch()

    def on_epoch_end(self) -> None:
        self._leave_epoch()

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch; raises a `SpecError` if it is negative."""
        self._leave_epoch()
        self._next_epoch = whole_number("epoch", epoch, 0)

    def close(self) -> None:
        """End the running epoch and free memory; may be called again."""
        self._leave_epoch()
        self.loader.close()

    def _leave_epoch(self) -> None:
        if self._running is not None:
            self._running.close()
        self._running, self._num_given = None, 0
