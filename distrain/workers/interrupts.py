"""Handles Ctrl-C, which a terminal sends to every process started from it."""

import signal
import threading

from distributed import Worker, WorkerPlugin


class IgnoreInterrupts(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Makes workers ignore Ctrl-C, which the process that started the local cluster handles.

    Rank processes inherit this setting.
    """

    name = "distrain-ignore-interrupts"

    def setup(self, worker: Worker) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
