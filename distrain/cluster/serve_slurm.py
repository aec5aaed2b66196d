"""`srun python -m distrain.cluster.serve_slurm FOLDER`: a Slurm job that is a Dask cluster.

Each task is a worker, with the GPU of its place on the node. The first task has the scheduler
beside it, and writes `FOLDER/state.json`. SIGUSR1 some time before the time limit, and SIGTERM, are
passed to the worker as a notice to leave: its ranks save a checkpoint first.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distrain.cluster.dashboard_token import TOKEN_VARIABLE
from distrain.cluster.local import count_gpus
from distrain.cluster.started import ProcessId, StartedCluster, write_started

POLL_S = 0.5
SCHEDULER_S = 300.0
"""How long the scheduler may take to start, on a shared filesystem that is slow."""
LEAVE_S = 110.0
"""How long the first task waits for the other workers to leave, before its scheduler ends."""


def main(args: list[str] | None = None) -> int:
    """Run this task's part of the cluster; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m distrain.cluster.serve_slurm")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    given = parser.parse_args(args)
    task = _Task(given.folder, given.device, os.environ)
    # Slurm signals every process of the job. Only this one takes it as the notice; those that it
    # starts inherit that they ignore it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return task.run()


class _Task:
    def __init__(self, folder: Path, device: str, environment: Mapping[str, str]):
        self._folder, self._device, self._environment = folder, device, environment
        self._job = environment["SLURM_JOB_ID"]
        self._rank = int(environment.get("SLURM_PROCID", "0"))
        self._scheduler_file = folder / f"scheduler-{self._job}.json"
        self._leaving = False

    def run(self) -> int:
        scheduler = self._start_scheduler() if self._rank == 0 else None
        worker = self._start_worker()
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, lambda *_: self._leave(worker))
        try:
            while worker.poll() is None and (scheduler is None or scheduler.poll() is None):
                time.sleep(POLL_S)
            if scheduler is None:
                (self._folder / f"left-{self._job}-{self._rank}").touch()
            elif self._leaving:
                self._wait_for_others()
        finally:
            for process in (worker, scheduler):
                if process is not None:
                    _end(process)
            if self._rank == 0:
                self._scheduler_file.unlink(missing_ok=True)
        return 0 if self._leaving else (worker.returncode or 0)

    def _leave(self, worker: "subprocess.Popen[bytes]") -> None:
        self._leaving = True
        if worker.poll() is None:
            worker.terminate()

    def _wait_for_others(self) -> None:
        """Keep the scheduler while workers of other tasks save checkpoints through it."""
        until_s = time.monotonic() + LEAVE_S
        left = int(self._environment.get("SLURM_NTASKS", "1")) - 1
        pattern = f"left-{self._job}-*"
        while time.monotonic() < until_s and len([*self._folder.glob(pattern)]) < left:
            time.sleep(POLL_S)
        for file in self._folder.glob(pattern):
            file.unlink(missing_ok=True)

    def _start_scheduler(self) -> "subprocess.Popen[bytes]":
        token = secrets.token_urlsafe(32)
        host = socket.gethostname()
        words = [sys.executable, "-P", "-m", "distributed.cli.dask_scheduler"]
        words += ["--host", host, "--port", "0", "--dashboard-address", f"{host}:0"]
        words += ["--preload", "distrain.preload", "--scheduler-file", str(self._scheduler_file)]
        environment = {**self._environment, TOKEN_VARIABLE: token}
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)
        told = self._told(process)
        me = ProcessId.of(os.getpid())
        assert me is not None  # it runs
        write_started(
            self._folder,
            StartedCluster(
                me,
                token,
                url=f"http://{host}:{told['services']['dashboard']}",
                scheduler=told["address"],
                num_workers=int(self._environment.get("SLURM_NTASKS", "1")),
                slurm_job=self._job,
            ),
        )
        return process

    def _told(self, scheduler: "subprocess.Popen[bytes] | None" = None) -> dict[str, Any]:
        """What the scheduler's file says, once it is whole."""
        until_s = time.monotonic() + SCHEDULER_S
        while time.monotonic() < until_s and (scheduler is None or scheduler.poll() is None):
            try:
                told: dict[str, Any] = json.loads(self._scheduler_file.read_bytes())
                return told
            except (OSError, ValueError):
                time.sleep(POLL_S)
        raise SystemExit(f"the scheduler of {self._scheduler_file} did not start")

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        told = self._told()
        environment = dict(self._environment)
        environment.pop(TOKEN_VARIABLE, None)
        if self._device != "cpu" and count_gpus():
            # Where tasks share a node's GPUs, Slurm shows all of them to each.
            shown = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
            place = int(environment.get("SLURM_LOCALID", "0"))
            chosen = shown[place % len(shown)] if shown != [""] else str(place)
            environment["CUDA_VISIBLE_DEVICES"] = chosen
        elif self._device == "cuda":
            raise SystemExit("device is cuda, and this node shows no GPU to the job")
        words = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", told["address"]]
        words += ["--nthreads", "1", "--host", socket.gethostname()]
        words += ["--dashboard-address", "127.0.0.1:0", "--name", f"{self._job}-{self._rank}"]
        return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
