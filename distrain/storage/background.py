"""File I/O in a separate thread, so that a hanging filesystem does not block the event loop.

Dask declares a worker dead if it does not answer within its time to live. A network filesystem may
hang for longer, so a supervisor must not read or write files in its event loop.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")


class BackgroundWriter:
    """Runs queued calls in order, in a daemon thread: the process can end even if a call hangs."""

    def __init__(self, name: str):
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> None:
        """Queue a call, which runs after all earlier ones. The call must not raise."""
        self._work.put(work)

    async def answer(self, work: Callable[[], Result], timeout_s: float) -> Result:
        """Queue a call; return its result, or raise its error.

        Raises `TimeoutError` if it does not end within `timeout_s` seconds. If it has begun by
        then, it continues.
        """
        future = Future[Result]()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)

        self.do(call)
        return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)

    async def done(self, timeout_s: float) -> bool:
        """Wait for all calls queued so far; return True if they end within `timeout_s` seconds."""
        try:
            await self.answer(lambda: None, timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """End the thread after the queued calls; returns at once."""
        self._work.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end after `close`; return True if it ends within `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class LossyQueue(Generic[Item]):
    """A bounded queue of items that a `BackgroundWriter` writes.

    If the waiting items exceed `limit_bytes`, the oldest are dropped, except the first and the
    newest. `take(left_out_bytes, item)` is called in the writer's thread for each item that was not
    dropped: `left_out_bytes` is the size of the items dropped just before this item.

    Attributes:
        left_out_items: Number of items dropped so far.
    """

    def __init__(
        self, writer: BackgroundWriter, limit_bytes: int, take: Callable[[int, Item], None]
    ):
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._take = take
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Item, int]] = deque()
        self._waiting_bytes = 0
        self._left_out_bytes = 0  # dropped after the first waiting item
        self._due_bytes = 0  # dropped before the first waiting item
        self._turns = 0  # queued calls of the writer, at least one for each waiting item
        self.left_out_items = 0

    def put(self, item: Item, size_bytes: int) -> None:
        with self._lock:
            self._waiting.append((item, size_bytes))
            self._waiting_bytes += size_bytes
            while self._waiting_bytes > self._limit_bytes and len(self._waiting) > 2:
                _, gone_bytes = self._waiting[1]
                del self._waiting[1]
                self._waiting_bytes -= gone_bytes
                self._left_out_bytes += gone_bytes
                self.left_out_items += 1
            ask = self._turns < len(self._waiting)
            self._turns += ask
        if ask:
            self._writer.do(self._take_next)

    def _take_next(self) -> None:
        # One item for each call, so that other users of the writer do not wait for all items.
        with self._lock:
            self._turns -= 1
            if not self._waiting:  # the item of this call was dropped
                return
            item, size_bytes = self._waiting.popleft()
            self._waiting_bytes -= size_bytes
            left_out_bytes = self._due_bytes
            self._due_bytes, self._left_out_bytes = self._left_out_bytes, 0
        self._take(left_out_bytes, item)


async def in_thread(work: Callable[[], Result], timeout_s: float) -> Result:
    """Run a call in a daemon thread of its own; as `BackgroundWriter.answer`."""
    writer = BackgroundWriter("distrain-look")
    try:
        return await writer.answer(work, timeout_s)
    finally:
        writer.close()
