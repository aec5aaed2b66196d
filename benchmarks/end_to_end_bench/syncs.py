"""Counts how often torch makes the host wait for the GPU, and which thread waits."""

import sys
import threading
import warnings
from collections import Counter
from types import FrameType
from typing import Any

STEP = ("loop.py", "_one_step")
"""File and function in which the training thread runs a step; its other waits are between steps."""


class SyncCounter:
    """Counts waits between `begin` and `end`, by thread and by what the thread was doing.

    In sync debug mode torch warns in the waiting thread, for example when it reads a tensor's value
    or copies pageable memory. Waits inside a library are not counted.

    Attributes:
        of_steps: Waits of the training thread within steps, by line of code.
        of_reports: Its other waits, for example in reports and validations.
        running: Whether it counts now.
        of_others: Waits of other threads, which do not delay the training thread.
    """

    def __init__(self) -> None:
        self.of_steps: Counter[str] = Counter()
        self.of_reports: Counter[str] = Counter()
        self.of_others: Counter[str] = Counter()
        self._thread: int | None = None
        self._catcher: Any = None
        self.running = False

    def begin(self) -> None:
        """Start counting; call it in the thread that trains."""
        import torch

        self._thread = threading.get_ident()
        self._catcher = warnings.catch_warnings()
        self._catcher.__enter__()
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("warn")  # ignore its warning: a prototype
        warnings.simplefilter("always")
        warnings.showwarning = self._note
        self.running = True

    def end(self) -> None:
        """Stop counting."""
        import torch

        self.running = False
        torch.cuda.set_sync_debug_mode("default")
        self._catcher.__exit__(None, None, None)

    def _note(self, message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" not in str(message):
            return
        frame: FrameType | None = sys._getframe(1)
        line, in_step = place_of(frame)
        if threading.get_ident() != self._thread:
            self.of_others[line] += 1
        elif in_step:
            self.of_steps[line] += 1
        else:
            self.of_reports[line] += 1


def place_of(frame: FrameType | None) -> tuple[str, bool]:
    """Return the innermost line of distrain in a stack, and whether the stack is within a step."""
    line, in_step = "", False
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if not line and "distrain/" in path and "end_to_end_bench" not in path:
            line = f"distrain/{path.rsplit('distrain/', 1)[1]}:{frame.f_lineno} ({name})"
        in_step = in_step or (path.endswith(STEP[0]) and name == STEP[1])
        frame = frame.f_back
    return line or "elsewhere", in_step
