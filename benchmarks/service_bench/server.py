"""An API process over a database: `python -m ...server SETTINGS_FILE SOCKET_DESCRIPTOR`."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import uvicorn

from distrain.service.access.sessions import make_token
from distrain.service.api.app import make_app
from distrain.service.settings import ClusterProfile, Limits, Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store, migrate, open_store
from distrain.service.values import Quota, Role, Scope

ROOT = Path(__file__).resolve().parents[2]
SPEC = {"name": "clicks", "data": {"train": "/data/clicks/day_*"}, "model": {"kind": "mlp"}}


@dataclass(frozen=True)
class Served:
    """The API processes of a service.

    Attributes:
        url: Base URL of the API.
        token: Token of a submitter in the project `ads`.
        settings: The service's settings.
        store: The same database, opened in this process.
        pids: Ids of the API processes.
    """

    url: str
    token: str
    settings: Settings
    store: Store
    pids: tuple[int, ...]

    def connection(self) -> HTTPConnection:
        """Return a connection, which opens at its first request."""
        address = urlsplit(self.url)
        return HTTPConnection(address.hostname or "", address.port, timeout=30.0)

    def cpu_s(self) -> float:
        """Return the server's processor time so far."""
        used = [psutil.Process(pid).cpu_times() for pid in self.pids]
        return float(sum(one.user + one.system for one in used))

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of every request."""
        return {"Authorization": f"Bearer {self.token}", **more}


def settings_for(
    folder: Path, database_url: str | None = None, cluster_url: str = "http://127.0.0.1:1"
) -> Settings:
    """Return settings for many event streams; without a URL the cluster is unreachable."""
    profile = ClusterProfile(url=cluster_url, run_root=folder / "runs")
    return Settings(
        data_dir=folder,
        database_url=database_url,
        clusters={"gpu": profile},
        limits=Limits(streams_per_token=10_000),
    )


@contextmanager
def served(
    folder: Path,
    database_url: str | None = None,
    cluster_url: str = "http://127.0.0.1:1",
    processes: int | None = None,
) -> Iterator[Served]:
    """Serve an empty database from other processes over one socket, until the block ends.

    Args:
        folder: Folder of the settings, the runs and an SQLite database.
        database_url: URL of a PostgreSQL database; `None` for SQLite.
        cluster_url: URL of the cluster's scheduler.
        processes: Number of API processes; `None`: one over SQLite, two over PostgreSQL.
    """
    settings = settings_for(folder, database_url, cluster_url)
    migrate(settings)
    given = folder / "settings.json"
    given.write_text(settings.model_dump_json())
    with open_store(settings, single=False) as store, ExitStack() as stack:
        token = _user(store)
        count = processes or (1 if database_url is None else 2)
        bound = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        pids = [stack.enter_context(_api(given, bound.fileno())) for _ in range(count)]
        port = bound.getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", token, settings, store, tuple(pids))


@contextmanager
def _api(settings_file: Path, descriptor: int) -> Iterator[int]:
    """Run an API process over a socket; yield its process id."""
    words = [str(settings_file), str(descriptor)]
    command = [sys.executable, "-m", "benchmarks.service_bench.server", *words]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, pass_fds=[descriptor]
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _user(store: Store) -> str:
    store.put_project("ads", Quota(max_queued_per_user=None))
    store.set_member("ads", "alice", Role.SUBMITTER)
    made, now_s = make_token(), store.now_s()
    store.put_token(
        Token(made.id, made.sha256, "alice", "", frozenset(Scope), now_s, now_s + 86_400)
    )
    return made.text


def main() -> None:
    settings = Settings.model_validate(json.loads(Path(sys.argv[1]).read_text()))
    bound = socket.socket(fileno=int(sys.argv[2]))
    with open_store(settings, single=False) as store:
        config = uvicorn.Config(make_app(store, settings), access_log=False, log_level="warning")
        print("ready", flush=True)
        uvicorn.Server(config).run(sockets=[bound])


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder for a database, within `DISTRAIN_BENCH_DIR` if that is set."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("DISTRAIN_BENCH_DIR")) as name:
        yield Path(name)


if __name__ == "__main__":
    main()
