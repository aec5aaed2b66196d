"""Writes an attempt's records (lines of metrics and events), on the worker of rank 0.

The coordinator sends them to the supervisor of rank 0.

A separate thread writes, since a filesystem may hang.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from distrain.errors import DistrainError
from distrain.jobs.assignment import Assignment
from distrain.runs.attempt_file import AttemptFile
from distrain.runs.finish_run import begin_attempt
from distrain.storage.background import BackgroundWriter

log = logging.getLogger(__name__)

END_S = 30.0  # how long to wait for the coordinator's last entries after the rank's end
OPEN_S = 30.0
CLOSE_S = 10.0


class AttemptRecords:
    """Writes the records of one attempt.

    `trouble` is called in the event loop with a message, and with whether the attempt has to end:
    with False when writing begins to fail, with True when it has failed for `FULL_DISK_S`.
    """

    def __init__(self, assignment: Assignment, trouble: Callable[[str, bool], None]):
        self._assignment = assignment
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        self._writer = BackgroundWriter("distrain-records")
        self._file: AttemptFile | None = None
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Create the attempt's file.

        Raises the error if that fails, and `OSError` if it takes longer than `OPEN_S`.
        """
        begin = partial(begin_attempt, self._assignment)
        try:
            self._file = await self._writer.answer(begin, OPEN_S)
        except TimeoutError:
            raise OSError(f"the run folder does not answer for {OPEN_S:g} s") from None

    def write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Append lines to the file later, in the thread that writes."""
        self._writer.do(lambda: self._append(lines))

    def end(self) -> None:
        """Record that the coordinator has sent the last lines: `close` need not wait for more."""
        self._ended.set()

    async def close(self, timeout_s: float = END_S) -> None:
        """Wait up to `timeout_s` for the call of `end`, write pending lines, and close the file.

        Never raises; lines that cannot be written are lost. Waits at most `CLOSE_S` for the writes.
        """
        with suppress(TimeoutError):  # the coordinator is gone
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        self._writer.do(self._close)
        await self._writer.done(CLOSE_S)
        self._writer.close()

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if self._file is None:
            return
        try:
            if trouble := self._file.append(lines):
                self._report(trouble, False)
        except DistrainError as error:
            self._report(str(error), True)

    def _report(self, error: str, ends: bool) -> None:
        self._loop.call_soon_threadsafe(self._trouble, error, ends)

    def _close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except DistrainError as error:
                log.warning("the last records are lost: %s", error)
