"""Values of a device that the host reads later, without making the device's queue run dry."""

import torch
from torch import Tensor


class HostCopy:
    """A copy of a device's values as they are at this point of its stream.

    On a GPU the copy goes to page-locked memory behind the work that is queued, and the host
    continues. On a CPU it is made at once.

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
            # A thread that waits for it sleeps, and does not spin.
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._event.record()

    @property
    def is_ready(self) -> bool:
        """Whether `read` returns without waiting."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def read(self) -> Tensor:
        """The values, on the host; waits for the device until it has copied them."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy
