"""A real `distrain serve` for tests: started, asked over HTTP, ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from waiting import until

from distrain.workers.cluster_file import read_started


class Serve:
    """A running `distrain serve --json`.

    Attributes:
        told: What it printed when it was ready.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path):
        self.process, self.log = process, log
        self.told: dict[str, Any] = {}

    def children(self) -> dict[str, int]:
        """Its processes by name, as its log says them last."""
        found = {}
        for line in self.lines():
            if line.get("event") == "started" and "child" in line:
                found[line["child"]] = line["pid"]
        return found

    def lines(self) -> list[dict[str, Any]]:
        """Its log's whole lines of JSON."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "}"]

    def client(self, token: str | None = None) -> httpx2.Client:
        """A client of its API."""
        shown = token or self.told.get("token")
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        return httpx2.Client(base_url=self.told["url"], headers=headers, timeout=60.0)


@contextmanager
def serving(
    folder: Path, *words: str, environment: dict[str, str] | None = None
) -> Iterator[Serve]:
    """Run the service with a data folder; at the end SIGTERM, and SIGKILL if that takes long."""
    command = [sys.executable, "-m", "distrain", "serve", "--data-dir", str(folder), "--json"]
    command += ["--port", "0", *words]
    log = folder.with_name(f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}.log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    serve = Serve(process, log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        serve.told = json.loads(line)
        yield serve
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def end_cluster(folder: Path) -> None:
    """End the cluster that a service started in this folder, if there is one; SIGKILL if slow."""
    started = read_started(folder)
    if started is None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        if started.process.is_running():
            os.killpg(started.process.pid, number)
            with suppress(AssertionError):
                until(lambda: not started.process.is_running(), within_s=60)
