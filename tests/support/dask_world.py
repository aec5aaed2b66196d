"""A Dask cluster of real processes that a test may shoot at, and the command that trains on it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psutil
from small_jobs import distrain_command, is_running
from waiting import until

from distrain.jobs.run_paths import RunPaths
from distrain.runs.attempts import read_records

DASK = (sys.executable, "-m", "dask")
RANK = "distrain.train.rank"


class DaskWorld:
    """A scheduler and workers, each its own process, as people start them; workers have nannies.

    Args:
        folder: Where its log goes.
        num_workers: How many.
        host: The scheduler's address; one of IPv6 in brackets.
        wrappers: Per worker, words before its command, such as `ip netns exec NAME`.
        scheduler_wrapper: The same for the scheduler.
        preload: Whether the scheduler begins with the coordinator.
        tls: Words for scheduler and workers that make them talk TLS.
        worker_words: More words for each worker.
    """

    def __init__(
        self,
        folder: Path,
        num_workers: int,
        host: str = "127.0.0.1",
        wrappers: Sequence[Sequence[str]] = (),
        scheduler_wrapper: Sequence[str] = (),
        preload: bool = True,
        tls: Sequence[object] = (),
        worker_words: Sequence[object] = (),
    ):
        self.folder = folder
        self.num_workers = num_workers
        self.wrappers = wrappers or [()] * num_workers
        self.scheduler_wrapper = scheduler_wrapper
        self.preload = ("--preload", "distrain.preload") if preload else ()
        self.host, self.port = host, free_port()
        # Dask's own option takes no IPv6 address.
        self._dashboard = "127.0.0.1:0" if host.startswith("[") else f"{host}:0"
        self.tls, self.worker_words = tls, worker_words
        self.protocol = ("--protocol", "tls") if tls else ()
        self.address = f"{'tls' if tls else 'tcp'}://{host}:{self.port}"
        self._log = (folder / "dask.log").open("a")
        self.scheduler: subprocess.Popen[bytes]
        self.nannies: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "DaskWorld":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._log.close()

    def start(self) -> None:
        """Start all of it."""
        self.scheduler = self._spawn(
            "scheduler", "--port", self.port, "--host", self.host, *self.protocol,
            "--dashboard-address", self._dashboard, *self.tls, *self.preload,
            wrapper=self.scheduler_wrapper,
        )  # fmt: skip
        if not self.scheduler_wrapper:  # one in a namespace cannot be reached from here
            # A client waits 15 s for it, which is too short where many processes start at once.
            until(self._listens, "the scheduler listens")
        self.nannies = [
            self.start_worker(f"w{number}", self.wrappers[number])
            for number in range(self.num_workers)
        ]

    def _listens(self) -> bool:
        assert self.scheduler.poll() is None, (self.folder / "dask.log").read_text()
        try:
            socket.create_connection((self.host.strip("[]"), self.port), 5).close()
        except OSError:
            return False
        return True

    def start_worker(self, name: str, wrapper: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """One more worker; it waits until it finds the scheduler."""
        return self._spawn(
            "worker", self.address, "--name", name, "--nthreads", 1, "--no-dashboard",
            "--local-directory", self.folder, *self.tls, *self.worker_words, wrapper=wrapper,
        )  # fmt: skip

    def stop(self) -> None:
        """End all of it, at once."""
        family = self.family()
        for process in (*self.nannies, self.scheduler):
            process.kill()
            process.wait()
        for process in family:
            if is_running(process.pid):
                process.kill()
        psutil.wait_procs(family, timeout=10)

    def kill_scheduler(self) -> None:
        """Kill the scheduler and wait until workers and ranks have ended by themselves."""
        family = self.family()
        self.scheduler.kill()
        self.scheduler.wait()
        for nanny in self.nannies:
            nanny.wait(timeout=90)
        left = [process for process in family if is_running(process.pid)]
        _, alive = psutil.wait_procs(left, timeout=10)
        assert not alive, f"outlived their scheduler: {[p.cmdline() for p in alive]}"

    def family(self) -> list[psutil.Process]:
        """All processes that belong to it."""
        roots = [p.pid for p in (self.scheduler, *self.nannies) if p.poll() is None]
        found = []
        for pid in roots:
            try:
                process = psutil.Process(pid)
                found += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def ranks(self) -> list[psutil.Process]:
        """The rank processes, by pid."""
        return sorted((p for p in self.family() if RANK in _words(p)), key=lambda p: p.pid)

    def workers(self) -> list[psutil.Process]:
        """The worker processes that nannies look after."""
        found = []
        for nanny in self.nannies:
            if nanny.poll() is None:
                children = psutil.Process(nanny.pid).children()
                found += [p for p in children if "spawn_main" in _words(p)]
        return found

    def _spawn(self, *words: object, wrapper: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        quiet = {**os.environ, "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error"}
        return subprocess.Popen(
            [*wrapper, *DASK, *map(str, words)], stdout=self._log, stderr=self._log, env=quiet
        )


class TrainCommand:
    """`distrain train`, or another command, in a process of its own.

    Args:
        words: Its arguments.
        log: Takes what it prints.
        command: Which command.
    """

    def __init__(self, *words: object, log: Path, command: str = "train"):
        self.log = log
        with log.open("a") as output:
            self.process = subprocess.Popen(
                distrain_command(command, *words),
                stdout=output,
                stderr=output,
                env={**os.environ, "COLUMNS": "200"},
            )

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def wait(self, timeout_s: float = 120.0) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(timeout=timeout_s)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, if it has not."""
        if not self.ended:
            self.process.kill()
            self.process.wait()


def records(run_dir: Path) -> list[dict[str, object]]:
    """The records of a run so far."""
    return [record.to_json() for record in read_records(RunPaths(run_dir))]


WHAT_COUNTS = (
    "split", "epoch", "step", "rows", "rows_total", "loss", "normalised_entropy", "auc",
    "auc_bound", "lr",
)  # fmt: skip


def what_counts(run_dir: Path) -> list[tuple[object, ...]]:
    """All of the records that does not depend on time or machines."""
    return [tuple(record[name] for name in WHAT_COUNTS) for record in records(run_dir)]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
