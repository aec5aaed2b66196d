"""Context managers that overlapping blocks of several threads share."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager


class SharedContext:
    """Enters a context manager with the first of several open blocks, and leaves it with the last.

    If each block changed and restored the same setting, blocks that do not end in the reverse order
    of their begins would restore what another one had set.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]):
        self._make = make
        self._open = ExitStack()
        self._num_blocks = 0
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context manager of one block."""
        with self._lock:
            if self._num_blocks == 0:
                self._open.enter_context(self._make())
            self._num_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_blocks -= 1
                if self._num_blocks == 0:
                    self._open.close()
