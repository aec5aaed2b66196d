"""The weights of the stores, some of which stay on the host wherever the model goes."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn


class StoreWeights(nn.ParameterList):
    """One parameter for each store.

    Args:
        weights: In the order of the stores.
    """

    def __init__(self, weights: Iterable[nn.Parameter]):
        super().__init__(weights)
        self._on_host: set[int] = set()

    def stay_on_host(self, weight: nn.Parameter) -> None:
        """Leave this one where it is when the model is moved to a device."""
        self._on_host.add(id(weight))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        own = dict(self._parameters)
        moving = {name: p for name, p in own.items() if id(p) not in self._on_host}
        self._parameters.clear()
        self._parameters.update(moving)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = dict(self._parameters)
        self._parameters.clear()
        # In their order again, which is that of the stores.
        self._parameters.update({name: moved.get(name, p) for name, p in own.items()})
        return self
