"""Commands that a rank gets from its supervisor while it trains: one JSON object a line.

    {"op": "checkpoint", "number": 7}
    {"op": "stop", "number": 8, "grace_s": 20.0}
    {"op": "kept", "number": 3}

Numbers are the coordinator's, the same for all ranks of a gang; that of `kept` is the rank's own.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from distrain.train.control import (
    SHARE_FOR_AGREEMENT,
    KeptReports,
    StepGate,
    StopDeadline,
    time_to_leave_s,
)

CHECKPOINT_WAIT_S = 30.0  # how long ranks wait for each other before they leave out a checkpoint

log = logging.getLogger("distrain.commands")


class Commands:
    def __init__(
        self, gate: StepGate, stop_deadline: StopDeadline, kept_reports: KeptReports | None = None
    ):
        self._gate = gate
        self._stop_deadline = stop_deadline
        self._kept_reports = kept_reports

    def listen(self, lines: Iterable[str], at_end: Callable[[], None]) -> None:
        """Start a thread that takes commands from `lines`, and calls `at_end` after the last."""

        def take_all() -> None:
            try:
                for line in lines:
                    self.take(line)
            finally:
                at_end()

        threading.Thread(target=take_all, name="commands", daemon=True).start()

    def take(self, line: str) -> None:
        """Carry a command out; an unknown one is logged, for newer supervisors may say more.

        >>> from distrain.checkpoint import RankStore
        >>> gate = StepGate(RankStore(), 0, 1)
        >>> Commands(gate, None).take('{"op": "checkpoint", "number": 7}')
        >>> gate.begin(), gate.begin()
        ('checkpoint', 'go')
        """
        try:
            self._carry_out(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the rank did not understand the command %r: %r", line[:200], error)

    def _carry_out(self, command: dict[str, Any]) -> None:
        number = int(command["number"])
        match command["op"]:
            case "checkpoint":
                self._gate.request(number, stops=False, wait_s=CHECKPOINT_WAIT_S)
            case "stop":
                grace_s = float(command["grace_s"])
                log.info("the rank is asked to stop within %.1f s", grace_s)
                self._stop_deadline.leave_within(time_to_leave_s(grace_s))
                wait_s = SHARE_FOR_AGREEMENT * grace_s
                self._gate.request(number, stops=True, wait_s=wait_s)
            case "kept" if self._kept_reports is not None:
                self._kept_reports.told(number)
            case other:
                log.warning("the rank does not know the command %r", other)
