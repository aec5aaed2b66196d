"""Work on what an iterator gives, in other threads, before the results are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

Item = TypeVar("Item")
Made = TypeVar("Made")

_END = object()


def made_ahead(
    make: Callable[[Item], Made], items: Generator[Item, None, None], threads: int
) -> Generator[Made, None, None]:
    """What `make` makes of each item, in the order of the items.

    One thread asks for the items, one after another; `threads` others make what is made of them.
    One more result than there are threads is made, or waits, ahead of the caller. What is raised
    comes in the place of the result. A caller that stops early closes `items`.

    >>> list(made_ahead(lambda n: n * n, (n for n in range(4)), 2))
    [0, 1, 4, 9]
    """
    waiting: deque[Future[object]] = deque()

    def made_of(item: Future[object]) -> object:
        found = item.result()
        return _END if found is _END else make(cast(Item, found))

    with (
        ThreadPoolExecutor(1, thread_name_prefix="distrain-items") as source,
        ThreadPoolExecutor(threads, thread_name_prefix="distrain-ahead") as makers,
    ):

        def begin_one() -> None:
            item: Future[object] = source.submit(next, items, _END)
            waiting.append(makers.submit(made_of, item))

        try:
            for _ in range(threads + 1):
                begin_one()
            while (result := waiting.popleft().result()) is not _END:
                begin_one()
                yield cast(Made, result)
        finally:
            makers.shutdown(cancel_futures=True, wait=False)
            source.shutdown(cancel_futures=True)  # a maker whose item is cancelled ends
            items.close()
