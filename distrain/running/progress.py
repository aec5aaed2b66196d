"""Whom a run tells how it goes."""

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distrain.coordinator.view import JobView

log = logging.getLogger("distrain")


class Progress(Protocol):
    """Shows a run to somebody; entered while the job is watched."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def say(self, text: str) -> None:
        """Tell a line."""

    def show(self, view: "JobView") -> None:
        """Show a view of the job."""


class LoggedProgress:
    """Tells what would be said to the log `distrain`, and shows nothing."""

    def __enter__(self) -> "LoggedProgress":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """See `Progress`."""
        log.info("%s", text)

    def show(self, view: "JobView") -> None:
        """See `Progress`."""
