"""A real `distrain serve` for tests: started, asked over HTTP, ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from dask_world import free_port
from real_postgres import Postgres
from waiting import until

from distrain.workers.cluster_file import read_started


class Part:
    """A process of `distrain serve` that a test kills, and that is started again as systemd does.

    Attributes:
        told: What it printed when it was ready.
    """

    def __init__(self, log: Path, *words: str, environment: Mapping[str, str] | None = None):
        self._command = [sys.executable, "-m", "distrain", "serve", *words, "--json"]
        self.log, self._environment = log, {**os.environ, **(environment or {})}
        self.process = self._started()
        self.told = self.ready()

    def kill(self) -> None:
        """Kill it, and start it again; `ready` waits until it is."""
        self.process.kill()
        self._reap()
        self.process = self._started()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reap()

    def _started(self) -> subprocess.Popen[str]:
        with self.log.open("ab") as errors:
            return subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )

    def ready(self) -> dict[str, Any]:
        """Return what it prints once it is ready."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        told: dict[str, Any] = json.loads(line)
        return told

    def _reap(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Serve(Part):
    """A running `distrain serve --json`."""

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
    log = folder.with_name(f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}.log")
    place = ("--data-dir", str(folder), "--port", "0")
    serve = Serve(log, *place, *words, environment=environment)
    try:
        yield serve
    finally:
        serve.end()


def serve_command(*words: str, environment: Mapping[str, str]) -> Any:
    """Run a command of `distrain serve` to its end; return its JSON."""
    line = [sys.executable, "-m", "distrain", "serve", *words, "--json"]
    done = subprocess.run(line, capture_output=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout)


@contextmanager
def service_parts(
    folder: Path,
    config: Path,
    database: Postgres | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[dict[str, Part], str, str]]:
    """Run a service that a test may kill: yield its processes by name, its address, and a token.

    With SQLite it is one process; with PostgreSQL, an API and a reconciler.
    """
    more = dict(environment or {})
    words = {"serve": ["--port", str(port := free_port())]}
    if database is not None:
        more["DISTRAIN_SERVICE_DATABASE_URL"] = database.url()
        words = {"api": ["api", "--port", str(port)], "reconciler": ["reconcile"]}
    place = ("--config", str(config), "--data-dir", str(folder / "data"))
    serve_command("migrate", *place, environment=more)
    made = serve_command("token", "create", "--user", "operator", *place, environment=more)
    parts = {
        name: Part(folder / f"{name}.log", *ones, *place, environment=more)
        for name, ones in words.items()
    }
    try:
        yield parts, f"http://127.0.0.1:{port}", made["token"]
    finally:
        for part in parts.values():
            part.end()


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
