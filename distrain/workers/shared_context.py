"""`SharedContext`: a context manager for overlapping blocks in several threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager


class SharedContext:
    """A context manager that several blocks share.

    A block is the body of a `with` statement over `held`. The context is made by `make` and entered
    when the first block begins, and left when the last open block ends. If instead each block
    changed and restored the same setting, blocks that do not end in the reverse order of their
    beginnings would restore the values of other blocks.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]):
        self._make = make
        self._open = ExitStack()
        self._num_blocks = 0
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Return a context manager for one block."""
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
