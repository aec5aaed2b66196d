"""A cluster on this machine, in a separate process that outlives the service."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from distrain.errors import ClusterError
from distrain.service.clusters.launcher import LauncherState, SchedulerAddress, child_environment
from distrain.service.settings import ClusterProfile
from distrain.storage.outputs import translated_errors
from distrain.workers.cluster_file import ProcessId, StartedCluster, read_started

STOP_S = 60.0  # how long workers get to save checkpoints and end


class LocalLauncher:
    """Starts a local cluster as a process of `distrain.workers.serve_local`.

    The process is found by a file that it writes. `folder` has that file and the process's log.
    """

    def __init__(self, name: str, profile: ClusterProfile, folder: Path):
        self._name, self._profile, self._folder = name, profile, folder
        self._child: subprocess.Popen[bytes] | None = None

    def find(self) -> SchedulerAddress | None:
        started = self._running()
        return SchedulerAddress(started.url, started.token) if started and started.url else None

    def start(self) -> None:
        """Start the local cluster's process, unless it is running.

        If two services start it at once, the second process finds the folder locked and exits.
        Raises `OutputError` if the folder cannot be made, and `ClusterError` if the process cannot
        be started.
        """
        if self._running() or self._is_child_alive():
            return
        with translated_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        words = [sys.executable, "-P", "-m", "distrain.workers.serve_local", str(self._folder)]
        words += ["--device", self._profile.device]
        if self._profile.num_workers:
            words += ["--workers", str(self._profile.num_workers)]
        try:
            made = os.open(self._folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with open(made, "ab") as log:
                self._child = subprocess.Popen(
                    words,
                    cwd=self._folder,
                    env=child_environment(os.environ, self._profile),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterError(
                f"cannot start the cluster {self._name}: {error}",
                where={"folder": str(self._folder)},
                hint="Check the folder's owner and the disk's space.",
            ) from error

    def stop(self) -> None:
        started = self._running()
        process = started.process if started else None
        if process is None and self._child and self._is_child_alive():
            process = ProcessId.of(self._child.pid)
        if process is not None and not _ended(process, signal.SIGTERM, STOP_S):
            _kill_group(process)
        self._is_child_alive()

    def state(self) -> LauncherState:
        alive, started = self._is_child_alive(), read_started(self._folder)
        if started is None:
            return LauncherState("starting" if alive else "absent")
        if started.process.is_running():
            if started.url:
                return LauncherState("running", f"{started.num_workers} workers on this machine")
            return LauncherState("starting")
        if alive:
            return LauncherState("starting")
        if started.error:
            return LauncherState("failed", started.error)
        return LauncherState("absent", f"its process has ended; see {self._folder / 'log'}")

    def _running(self) -> StartedCluster | None:
        self._is_child_alive()
        started = read_started(self._folder)
        return started if started and started.process.is_running() else None

    def _is_child_alive(self) -> bool:
        """Return True if a process that this object started is running; reap it if it has ended."""
        return self._child is not None and self._child.poll() is None


def _ended(process: ProcessId, number: int, wait_s: float) -> bool:
    """Send a signal, by number, to a process.

    Returns True if the process ends within `wait_s` seconds. Also returns True if the process had
    ended before.
    """
    try:
        held = os.pidfd_open(process.pid)
    except OSError:
        return True
    try:
        if not process.is_running():  # the id belongs to another process now
            return True
        signal.pidfd_send_signal(held, number)
        poll = select.poll()
        poll.register(held, select.POLLIN)
        return bool(poll.poll(wait_s * 1000))
    except ProcessLookupError:
        return True
    finally:
        os.close(held)


def _kill_group(process: ProcessId) -> None:
    if process.is_running():
        os.killpg(process.pid, signal.SIGKILL)
    if not _ended(process, signal.SIGKILL, 10.0):
        raise ClusterError(
            f"the cluster's process {process.pid} does not end",
            hint="It probably hangs in the kernel, on a filesystem or a device: check with `ps`.",
        )
