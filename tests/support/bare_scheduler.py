"""`dask scheduler` in a process of its own, as somebody starts it who knows nothing of distrain."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from distributed import Client
from waiting import until


class BareScheduler:
    """A scheduler in a process of its own.

    Args:
        client: Of it.
        prefix: What precedes its paths.
    """

    def __init__(self, client: Client, prefix: str = ""):
        self.client = client
        port = client.scheduler_info()["services"]["dashboard"]
        self.url = f"http://127.0.0.1:{port}{prefix}"

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Status and text."""
        request = Request(self.url + path)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urlopen(request, timeout=90) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def bare_scheduler(
    folder: Path, *words: str, prefix: str = "", **environment: str
) -> Iterator[BareScheduler]:
    """`dask scheduler`, without the preload."""
    file = folder / "scheduler.json"
    quiet = {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error"}
    command = [
        sys.executable, "-m", "dask", "scheduler", "--port", "0", "--host", "127.0.0.1",
        "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file), *words,
    ]  # fmt: skip
    with (folder / "dask.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **quiet, **environment}
        )
        try:
            until(file.exists, "the scheduler started")
            with Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
                yield BareScheduler(client, prefix)
        finally:
            process.terminate()
            process.wait(timeout=90)
