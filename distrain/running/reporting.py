"""How a run reports to people, on a screen or in a log."""

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distrain.jobs import JobView

log = logging.getLogger("distrain")


class Progress(Protocol):
    """Reports how a run goes; entered while its job is watched."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def say(self, text: str) -> None:
        """Report a line of text."""

    def show(self, view: "JobView") -> None:
        """Show a view of the job."""


class LoggedProgress:
    """Reports lines to the log `distrain`, and does not show the job."""

    def __enter__(self) -> "LoggedProgress":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """See `Progress`."""
        log.info("%s", text)

    def show(self, view: "JobView") -> None:
        """See `Progress`."""
