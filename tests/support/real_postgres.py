"""A real PostgreSQL of its own in a temporary folder, for tests that may kill it."""

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from types import TracebackType

import psycopg
from waiting import until

USER = "distrain"
PREFIX = "distrain-pg-"
OWNED = "owned"
"""A file that the owner of a folder holds a lock of, while it lives."""


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, of the newest version; Debian keeps them off PATH."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def why_absent() -> str | None:
    """Why no PostgreSQL can be started here; `None` where one can."""
    if binaries() is None:
        return "no PostgreSQL here: no /usr/lib/postgresql/*/bin/initdb"
    if shutil.which("setpriv") is None:
        return "PostgreSQL is started through setpriv (util-linux), which is not here"
    if os.geteuid() == 0 and _other_user() is None:
        return "initdb refuses root, and there is neither a user postgres nor nobody"
    return None


class Postgres:
    """A server on a free port of the loopback and on a Unix socket; use it in a `with` block.

    It ends with the process that started it, whatever becomes of that.
    It does not wait for the disk: if the server is killed, the operating system still writes its
    data.
    """

    def __init__(self) -> None:
        place = _fast_folder()
        remove_left(place or Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._owned = (self.folder / OWNED).open("w")
        fcntl.flock(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Removes the folder once its stdin is closed, also by the end of this process.
        self._remover = subprocess.Popen(
            ["sh", "-c", 'cat; until rm -rf "$1"; do sleep 0.1; done', "sh", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the tests
        )
        self.port = _free_port()
        self._password = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._names = count(1)

    def __enter__(self) -> "Postgres":
        try:
            self._make_cluster()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    @property
    def log(self) -> str:
        """What the server has written."""
        return (self.folder / "log").read_text()

    def url(self, database: str = "postgres") -> str:
        """The address of a database, over TCP."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """The address of a database that is nobody else's: empty, or a copy of another's name."""
        name = f"test_{next(self._names)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def start(self) -> None:
        """Start it, also after `kill`, and wait until it answers.

        Raises:
            AssertionError: It ended, or does not answer.
        """
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *_as_user("--pdeathsig", "QUIT"),
                    str(_bin("postgres")),
                    *("-D", str(self.folder / "data")),
                    *("-p", str(self.port)),
                    *("-c", "listen_addresses=127.0.0.1"),
                    *("-c", f"unix_socket_directories={self.folder}"),
                    *("-c", "fsync=off"),
                    *("-c", "max_connections=60"),
                    *("-c", "shared_buffers=64MB"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        until(self._answers, "PostgreSQL answers")

    def kill(self) -> None:
        """End it at once, as a crash of all its processes does; `start` recovers from its log."""
        self._end(signal.SIGQUIT)

    def _make_cluster(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self._password)
        if (user := _other_user()) is not None:
            for path in (self.folder, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        made = subprocess.run(
            [
                *_as_user(),
                str(_bin("initdb")),
                *("-D", str(self.folder / "data")),
                *("-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"),
                *("-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PostgreSQL ended:\n{self.log}"
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(timeout=60)
        self._process = None

    def _remove(self) -> None:
        self._end(signal.SIGQUIT)
        self._owned.close()
        self._remover.communicate()


def remove_left(place: Path) -> None:
    """Remove the folders of test processes that were killed: in memory, they hold 50 MB each."""
    for owned in place.glob(f"{PREFIX}*/{OWNED}"):
        try:
            if time.time() - owned.stat().st_mtime < 60:
                continue  # its owner may be about to lock it
            with owned.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owned.parent, ignore_errors=True)
        except OSError:  # somebody has it, or has removed it
            continue


def _fast_folder() -> Path | None:
    """Memory, where there is enough: a database has 300 files, and a slow disk feels each."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 2**31:
        return None
    return memory


def _bin(name: str) -> Path:
    folder = binaries()
    assert folder is not None, why_absent()
    return folder / name


def _other_user() -> pwd.struct_passwd | None:
    """Whom a server runs as where the tests are run by root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _as_user(*options: str) -> list[str]:
    user = _other_user()
    if user is not None:
        options += (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    return ["setpriv", *options] if options else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
