"""How much memory tensors take at most while some code runs."""

import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors made inside, as long as they live.

    Used as a context, in one thread. On the CPU a backward pass stays in the thread that asked for
    it, so what it makes is counted as well. Views have no memory of their own; what operations need
    inside themselves is not seen.

    Attributes:
        live: Bytes of those that live now.
        most: The most there were at a time.

    >>> import torch
    >>> with LiveBytes() as counted:
    ...     for _ in range(3):
    ...         made = torch.zeros(256)
    >>> counted.live, counted.most
    (1024, 2048)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.most = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and note the memory of its results."""
        # What comes from outside is not counted, nor are views of it.
        for given in tree_leaves((args, kwargs)):
            self._note(given, counts=False)
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            self._note(result, counts=True)
        return results

    def _note(self, value: object, *, counts: bool) -> None:
        if not isinstance(value, Tensor):
            return
        storage = value.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes() if counts else 0
        self.live += self._sizes[key]
        self.most = max(self.most, self.live)
        weakref.finalize(storage, self._drop, key).atexit = False

    def _drop(self, key: int) -> None:
        self.live -= self._sizes.pop(key)
