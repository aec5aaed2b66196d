"""How often torch makes the host wait for the GPU, and who is made to wait."""

import sys
import threading
import warnings
from collections import Counter
from types import FrameType
from typing import Any

STEP = ("loop.py", "_one_step")
"""The frame in which the training thread takes a step; what it does else, it does between steps."""


class SyncCounter:
    """Counts waits between `begin` and `end`, by thread and by what the thread was doing.

    torch warns where it waits, in the thread that waits; reading a tensor's value, counting, and
    copies of pageable memory are such places. Waits inside a library are not seen.

    Attributes:
        of_steps: Waits of the training thread within its steps, by the line that waited.
        of_reports: Its other waits: reports, validations.
        running: Whether it counts now.
        of_others: Waits of other threads, which nobody else waits for.
    """

    def __init__(self) -> None:
        self.of_steps: Counter[str] = Counter()
        self.of_reports: Counter[str] = Counter()
        self.of_others: Counter[str] = Counter()
        self._thread: int | None = None
        self._catcher: Any = None
        self.running = False

    def begin(self) -> None:
        """Count from here on; the calling thread is the one that trains."""
        import torch

        self._thread = threading.get_ident()
        self._catcher = warnings.catch_warnings()
        self._catcher.__enter__()
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("warn")  # of which torch warns, in words of a wait
        warnings.simplefilter("always")
        warnings.showwarning = self._note
        self.running = True

    def end(self) -> None:
        """Count no more."""
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
    """The innermost line of distrain, and whether a step is among its callers."""
    line, in_step = "", False
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if not line and "distrain/" in path and "end_to_end_bench" not in path:
            line = f"distrain/{path.rsplit('distrain/', 1)[1]}:{frame.f_lineno} ({name})"
        in_step = in_step or (path.endswith(STEP[0]) and name == STEP[1])
        frame = frame.f_back
    return line or "elsewhere", in_step
