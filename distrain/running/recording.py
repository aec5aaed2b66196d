"""Keeps a run directory up to date that may take no records for a while."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distrain.errors import OutputError

if TYPE_CHECKING:
    from distrain.coordinator.view import Entry, JobView
    from distrain.report import RunRecorder

FULL_DISK_S = 60.0
"""How long a run directory may take no records until its job is stopped. A rank that fills the same
disk with its model leaves room again when it fails, and its account of that says more."""


class PatientRecorder:
    """A recorder whose disk may be full for a while: what could not be written is written later.

    Args:
        recorder: Writes.
        say: Is told when that fails for the first time.
        limit_s: How long it may fail; `None`: to the job's end.
    """

    def __init__(
        self, recorder: "RunRecorder", say: Callable[[str], None], limit_s: float | None = None
    ):
        self._recorder = recorder
        self._say = say
        self._limit_s = limit_s
        self._failing_since_s: float | None = None

    def add(self, view: "JobView") -> "list[Entry]":
        """Take in what is new in a view.

        Returns:
            As `RunRecorder.add`; nothing while it fails.

        Raises:
            OutputError: It has failed for too long, and the job has not ended.
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
