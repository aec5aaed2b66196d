"""Handles Ctrl-C, which a terminal sends to all processes of the command that runs in it."""

import signal
import threading

from distributed import Worker, WorkerPlugin


class IgnoreInterrupts(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Makes a local cluster's worker processes ignore Ctrl-C (SIGINT).

    The process that started the cluster handles it. Rank processes inherit this setting.
    """

    name = "distrain-ignore-interrupts"

    def setup(self, worker: Worker) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
