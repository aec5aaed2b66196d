"""Ctrl-C in a terminal, which reaches every process that was started from it."""

import signal
import threading

from distributed import Worker, WorkerPlugin


class IgnoreInterrupts(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Leaves Ctrl-C to the process that owns the local cluster; rank processes inherit that."""

    name = "distrain-ignore-interrupts"

    def setup(self, worker: Worker) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
