"""`srun python -m distrain.workers.serve_slurm FOLDER`: runs a Dask cluster as a Slurm job.

Each task of the job runs a worker, which uses one GPU of its node, chosen by the task's local id.
The first task also runs the scheduler. It writes `FOLDER/client.env`, which a user's shell sources
to use the cluster, and `FOLDER/url` and `FOLDER/token`, with which a job service uses it. It
removes these files at its end. Dask's
connections require a certificate made for this cluster, unless Dask's configuration names other
certificates. On SIGUSR1, which Slurm sends before the time limit, and on SIGTERM, the worker's
ranks save a checkpoint and the worker leaves.
"""

import argparse
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distrain.errors import ClusterError, DistrainError
from distrain.workers.local import count_gpus
from distrain.workers.secrets import (
    TOKEN_VARIABLE,
    has_certificates,
    tls_environment,
    write_certificate,
    write_private,
)

INTERFACE_VARIABLE = "DISTRAIN_INTERFACE"
"""The environment variable of workers that names the network interface of their ranks."""

NOTICE_S = 120
"""How long the job's processes have to end after Slurm's signal, in seconds.

Slurm sends it at least 180 s before the time limit (`--signal` in `deploy/slurm`).
"""


def life_of(environment: Mapping[str, str]) -> str:
    """Return an id of this start of a Slurm job, as a part of file names.

    It is made from Slurm's environment variables. A job that is requeued keeps its job id, but gets
    another id here.

    >>> life_of({"SLURM_JOB_ID": "12"}), life_of({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"})
    ('12-0', '12-2')
    """
    return f"{environment['SLURM_JOB_ID']}-{environment.get('SLURM_RESTART_COUNT') or '0'}"


def gpu_of(environment: Mapping[str, str]) -> str:
    """Return the GPU that this task uses, as a value for CUDA_VISIBLE_DEVICES.

    If CUDA_VISIBLE_DEVICES has several GPUs, those of all tasks on the node, it is the one at the
    task's local id. If it has one GPU, it is that one. If it is not set, it is the local id. Raises
    `ClusterError` if the local id is not below the number of the job's GPUs on the node.

    >>> gpu_of({"CUDA_VISIBLE_DEVICES": "4,5,6,7", "SLURM_LOCALID": "2"})
    '6'
    """
    place = int(environment.get("SLURM_LOCALID") or 0)
    shown = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    on_node = int(environment.get("SLURM_GPUS_ON_NODE") or len(shown) or place + 1)
    if place >= on_node or (len(shown) > 1 and place >= len(shown)):
        raise ClusterError(
            f"task {place} of this node has no GPU for itself",
            where={"node": socket.gethostname(), "GPUs of the job on it": on_node},
            hint="Request one GPU per task: --ntasks-per-node=N --gpus-per-node=N.",
        )
    if not shown:  # Slurm does not manage the GPUs
        return str(place)
    return shown[place] if len(shown) > 1 else shown[0]


def listening_words(environment: Mapping[str, str]) -> list[str]:
    """Return the command-line options with which Dask's processes listen on the right address."""
    interface = environment.get(INTERFACE_VARIABLE)
    return ["--interface", interface] if interface else ["--host", address_of_node(environment)]


def address_of_node(environment: Mapping[str, str]) -> str:
    """Return this node's name, or its IP address if other nodes of the job cannot use the name.

    They cannot if the name resolves to a loopback address, or not at all.
    """
    name = socket.gethostname()
    if int(environment.get("SLURM_JOB_NUM_NODES") or 1) < 2 or not _is_loopback(name):
        return name
    from distributed.utils import get_ip

    return str(get_ip())


def _is_loopback(name: str) -> bool:
    try:
        return socket.gethostbyname(name).startswith("127.")
    except OSError:
        return True  # others cannot resolve it either


CLIENT_FILE = "client.env"
URL_FILE = "url"  # the address of the scheduler's HTTP server
TOKEN_FILE = "token"  # the token that this server requires
POLL_S = 0.5
SCHEDULER_S = 300.0  # how long the scheduler may take to start from a slow shared filesystem
LEAVE_S = NOTICE_S - 10.0
"""How long the first task waits for the workers of other tasks before it ends the scheduler.

Also how long a scheduler or worker may take to end before it is killed.
"""
_IGNORE_SIGTERM = "distrain.workers.serve_slurm"  # its `dask_setup` ignores the signal
_NOTICES = frozenset({signal.SIGUSR1, signal.SIGTERM})


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m distrain.workers.serve_slurm")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    given = parser.parse_args(args)
    try:
        return _Task(given.folder.absolute(), given.device, os.environ).run()
    except _Left:
        return 0
    except DistrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def dask_setup(_server: object) -> None:
    """Ignore SIGTERM in Dask's scheduler and nannies, which load this module as a preload.

    Slurm sends SIGTERM to every process of a step. The scheduler must not end while ranks save
    checkpoints, and a nanny would end at once. Instead, the task sends SIGINT to its nanny, which
    then leaves. Dask sets its own handlers before it calls preloads; a nanny's worker inherits this
    setting.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _Left(Exception): ...  # the task is asked to leave while it waits for the scheduler to start


class _Task:
    """One task of the Slurm job.

    `run` starts the task's worker, and the scheduler if this is the first task. When one of them
    has ended, it ends the other, and returns the worker's exit code; 0 if the task was asked to
    leave.
    """

    def __init__(self, folder: Path, device: str, environment: Mapping[str, str]):
        self._folder, self._device, self._environment = folder, device, dict(environment)
        self._job = environment["SLURM_JOB_ID"]
        self._life = life_of(environment)
        self._rank = int(environment.get("SLURM_PROCID", "0"))
        self._scheduler_file = folder / f"scheduler-{self._life}.json"
        self._certificate = folder / f"tls-{self._life}.pem"
        self._own_certificate = not has_certificates()
        self._worker: subprocess.Popen[bytes] | None = None
        self._leaving = False
        self._published: dict[str, bytes] = {}  # contents of files, by name

    def run(self) -> int:
        # Slurm signals every process of a step, but only this process handles the signals. Its
        # children inherit that both are blocked, and are ended with SIGINT. (Python's
        # multiprocessing unblocks SIGTERM again, hence the preload.)
        signal.pthread_sigmask(signal.SIG_BLOCK, _NOTICES)
        for number in _NOTICES:
            signal.signal(number, lambda *_: self._leave())
        started: list[subprocess.Popen[bytes]] = []
        try:
            scheduler = self._start_scheduler(started) if self._rank == 0 else None
            self._worker = worker = self._start_worker()
            started.insert(0, worker)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOTICES)
            while worker.poll() is None and (scheduler is None or scheduler.poll() is None):
                time.sleep(POLL_S)
            if scheduler is not None and self._leaving:
                self._wait_for_others()
        finally:
            for process in started:
                _end(process)
            if self._rank == 0:
                self._remove_files()
            else:
                (self._folder / f"left-{self._life}-{self._rank}").touch()
        return 0 if self._leaving else (worker.returncode or 0)

    def _leave(self) -> None:
        if not self._leaving and self._worker is not None and self._worker.poll() is None:
            self._worker.send_signal(signal.SIGINT)
        self._leaving = True

    def _wait_for_others(self) -> None:
        """Wait until the workers of other tasks have left, at most `LEAVE_S`.

        They need the scheduler of this task.
        """
        until_s = time.monotonic() + LEAVE_S
        others = int(self._environment.get("SLURM_NTASKS", "1")) - 1
        while time.monotonic() < until_s and len(self._left_files()) < others:
            time.sleep(POLL_S)

    def _left_files(self) -> list[Path]:
        return [*self._folder.glob(f"left-{self._life}-*")]

    def _remove_files(self) -> None:
        for file in (self._scheduler_file, self._certificate, *self._left_files()):
            file.unlink(missing_ok=True)
        for name, content in self._published.items():
            file = self._folder / name
            if file.is_file() and file.read_bytes() == content:  # not those of a later cluster
                file.unlink(missing_ok=True)

    def _start_scheduler(
        self, started: "list[subprocess.Popen[bytes]]"
    ) -> "subprocess.Popen[bytes]":
        if self._own_certificate:
            write_certificate(self._certificate)
        token = secrets.token_urlsafe(32)
        address = address_of_node(self._environment)
        words = [sys.executable, "-P", "-m", "distributed.cli.dask_scheduler"]
        words += [*listening_words(self._environment), "--port", "0", "--protocol", "tls"]
        words += ["--dashboard-address", f"{address}:0"]
        words += ["--preload", "distrain.preload", "--preload", _IGNORE_SIGTERM]
        words += ["--scheduler-file", str(self._scheduler_file)]
        environment = {**self._environment, **self._tls(), TOKEN_VARIABLE: token}
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)
        started.append(process)
        info = self._scheduler_info(process)
        self._publish(info["address"], f"http://{address}:{info['services']['dashboard']}", token)
        return process

    def _publish(self, scheduler: str, url: str, token: str) -> None:
        variables = {"DISTRAIN_SCHEDULER": scheduler, **self._tls()}
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        self._published = {
            TOKEN_FILE: token.encode(),
            URL_FILE: url.encode(),
            CLIENT_FILE: "".join(lines).encode(),
        }
        for name, content in self._published.items():
            write_private(self._folder / name, content)

    def _tls(self) -> dict[str, str]:
        return tls_environment(self._certificate) if self._own_certificate else {}

    def _scheduler_info(self, scheduler: "subprocess.Popen[bytes] | None" = None) -> dict[str, Any]:
        until_s = time.monotonic() + SCHEDULER_S
        while time.monotonic() < until_s and (scheduler is None or scheduler.poll() is None):
            if signal.sigpending() & _NOTICES:
                raise _Left
            try:
                info: dict[str, Any] = json.loads(self._scheduler_file.read_bytes())
                return info
            except (OSError, ValueError):
                time.sleep(POLL_S)
        raise ClusterError(
            "the cluster's scheduler did not start",
            where={"job": self._life, "file": self._scheduler_file},
            hint="Check its output above, and whether all nodes of the job see that folder.",
        )

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        info = self._scheduler_info()
        environment = {**self._environment, **self._tls()}
        environment.pop(TOKEN_VARIABLE, None)
        if self._device != "cpu" and count_gpus():
            environment["CUDA_VISIBLE_DEVICES"] = gpu_of(environment)
        elif self._device == "cuda":
            raise ClusterError(
                "device is cuda, but the job sees no GPU on this node",
                where={"node": address_of_node(environment)},
                hint="Request GPUs: --gpus-per-node=N; `nvidia-smi` in the job shows them.",
            )
        words = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", info["address"]]
        words += ["--nthreads", "1", *listening_words(environment)]
        words += ["--dashboard-address", "127.0.0.1:0", "--name", f"{self._job}-{self._rank}"]
        words += ["--preload-nanny", _IGNORE_SIGTERM]
        return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
