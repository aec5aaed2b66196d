"""Keeps a run directory up to date, also one whose disk is full for a while."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distrain.errors import OutputError
from distrain.report import draw_curves

if TYPE_CHECKING:
    from distrain.jobs import Entry, JobView
    from distrain.runs import RunRecorder, Summary

FULL_DISK_S = 60.0
"""How long writing to a run directory may fail until its job is stopped. A rank that fills the same
disk with its model leaves room again when it fails, and its own error says more."""


class RetryingRecorder:
    """Writes to a run directory, and writes later what could not be written.

    Args:
        recorder: The run directory's recorder.
        say: Called with a warning when writing begins to fail.
        limit_s: How long writing may fail; `None` for until the job's end.
    """

    def __init__(
        self, recorder: "RunRecorder", say: Callable[[str], None], limit_s: float | None = None
    ):
        self._recorder = recorder
        self._say = say
        self._limit_s = limit_s
        self._failing_since_s: float | None = None

    def add(self, view: "JobView") -> "list[Entry]":
        """Write what is new in a view; returns it as `RunRecorder.add` does, nothing on failure.

        Raises:
            OutputError: Writing has failed for `limit_s`, and the job has not ended.
        """
        try:
            fresh = self._recorder.add(view)
        except OutputError as error:
            now_s = time.monotonic()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
                self._say(f"warning: {error}")
            failing_s = now_s - self._failing_since_s
            if not view.state.is_final and self._limit_s is not None and failing_s >= self._limit_s:
                raise
            return []
        self._failing_since_s = None
        return fresh


def finish(recorder: "RunRecorder", view: "JobView", say: Callable[[str], None]) -> "Summary":
    """Finish the run directory of a job that has ended; returns its summary.

    An `OutputError` of a job that did not succeed is a warning: what ended it matters more.
    """
    try:
        return recorder.finish(view, draw_curves)
    except OutputError as error:
        if view.reason is None:
            raise
        say(f"warning: {error}")
        return recorder.sum_up(view)
