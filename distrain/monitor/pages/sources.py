"""Where pages find their documents: the monitor beside the scheduler's coordinator."""

from collections.abc import Callable
from typing import Any

from distrain.monitor.observer import EXTENSION
from distrain.monitor.pages.watching import Documents


def documents_of(scheduler: Any) -> Callable[[], Documents | None]:
    """What finds a scheduler's documents; `None` until there is a coordinator.

    It looks each time: a coordinator may come while a page is open.
    """
    return lambda: scheduler.extensions.get(EXTENSION)
