"""Tasks that score, on a Dask cluster, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any

from distrain.etl.workers import as_they_end, result_of


def results(
    client: Any, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Generator[tuple[int, Any], None, None]:
    """Each task's place and the result of `function`, as they come.

    Raises:
        ClusterError: Workers died, or the cluster gave the tasks up.
    """

    def submit(_: int, task: tuple[Any, ...]) -> Any:
        return client.submit(function, *task, pure=False)

    with closing(as_they_end(client, submit, enumerate(tasks))) as ended:
        for place, future in ended:
            yield place, result_of(future, "scored", "tasks that score", "--batch-size")
