"""A second stream of a GPU, for work whose result is needed later."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Branch:
    """Runs GPU work in parallel to the current stream; in a CUDA graph it is a branch of the graph.

    On other devices, the work runs immediately. The caller keeps all tensors that the work reads
    until `join`: torch would reuse their memory for work of the current stream. Call `join` before
    the end of a recording, and before the results are used.
    """

    def __init__(self, device: torch.device):
        self._stream: torch.cuda.Stream | None = None
        self._is_open = False
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def on_side_stream(self) -> Iterator[None]:
        """Return a context whose work begins after all work queued so far."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._is_open = True
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Make the current stream wait for the work; does nothing if there is none."""
        if self._stream is not None and self._is_open:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
            self._is_open = False
