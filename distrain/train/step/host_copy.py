"""Values of a device that the host reads later, while the device continues to work."""

import torch
from torch import Tensor


class HostCopy:
    """A copy of a device's values at this point of its stream.

    On a GPU the copy to page-locked memory is queued after earlier work, and the host continues. On
    a CPU it is made at once.

    >>> values = torch.tensor([1, 2])
    >>> copy = HostCopy(values)
    >>> values.zero_().tolist(), copy.is_ready, copy.read().tolist()
    ([0, 0], True, [1, 2])
    """

    def __init__(self, values: Tensor):
        on_gpu = values.device.type == "cuda"
        self._copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=on_gpu)
        self._copy.copy_(values, non_blocking=True)
        self._event: torch.cuda.Event | None = None
        if on_gpu:
            # A thread that waits for a blocking event sleeps, and does not spin.
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._event.record()

    @property
    def is_ready(self) -> bool:
        """Return True if `read` would not wait."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def read(self) -> Tensor:
        """Return the values on the host; waits until the copy is complete."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy
