"""Tasks of preparations without a cluster."""

from collections.abc import Callable, Sequence
from typing import Any


class TasksHere:
    """Runs tasks in this process, one after another, where a `TaskRunner` is wanted."""

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        on_done: Callable[[int, Any], None] | None = None,
        sizes_bytes: Sequence[int] | None = None,
    ) -> list[Any]:
        results = [function(*one) for one in arguments]
        for place, result in enumerate(results if on_done else ()):
            on_done(place, result)  # type: ignore[misc]
        return results
