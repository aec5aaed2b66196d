"""The calls of the commands: the whole service, and each of its processes alone.

The supervisor binds the API's socket, so that it stays when an API process dies: connections that
come meanwhile wait in its queue for the next process.
"""

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from distrain.errors import ClusterError, OutputError, on_sigterm
from distrain.service.clusters.choosing import make_launcher
from distrain.service.process.logs import set_up_logs
from distrain.service.process.preparing import check_key, declare, first_token, make_folder
from distrain.service.process.supervisor import Supervisor
from distrain.service.settings import Listen, Settings
from distrain.service.store.people import Token
from distrain.service.store.store import migrate, open_store
from distrain.workers.cluster_file import only_one


@dataclass(frozen=True)
class Serving:
    url: str  # the API's and the page's address
    settings: Settings
    database: str
    token: tuple[Token, str] | None  # the first operator's with its text, if it was made just now


def serve(
    read: Callable[[], Settings],
    config: Path | None,
    on_ready: Callable[[Serving], None],
    *,
    stop_clusters: bool = False,
    makes_token: bool = True,
) -> None:
    """Run the service until SIGTERM or SIGINT; raises DistrainError where it cannot start.

    With `makes_token` its output has the first token, which keepers of output would keep, too.
    """
    settings = read()
    set_up_logs("supervisor")
    make_folder(settings)
    with only_one(settings.data_dir / "serve.lock") as is_only:
        if not is_only:
            raise ClusterError(
                "another `distrain serve` has the data folder",
                where={"data_dir": str(settings.data_dir)},
                hint="Stop that one, or name another folder with --data-dir.",
            )
        with bind(settings.listen) as bound:
            bound.set_inheritable(False)
            migrate(settings)
            with open_store(settings) as store:
                check_key(store, settings)
                declare(store, settings)
                made = first_token(store, settings) if makes_token else None
                serving = Serving(url_of(settings.listen, bound), settings, store.db.where, made)
                supervisor = Supervisor(
                    store, settings, bound, read, config, lambda: on_ready(serving)
                )
                supervisor.run()
                if stop_clusters:
                    end_clusters(supervisor.settings, store.service_id)
        if settings.listen.unix_socket:
            settings.listen.unix_socket.unlink(missing_ok=True)


def end_clusters(settings: Settings, service_id: str) -> None:
    for name in settings.clusters:
        make_launcher(name, settings, service_id).stop()


def api_alone(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Run the API in this process, until SIGTERM or SIGINT."""
    from distrain.service.process.api_process import run_api

    set_up_logs("api")
    make_folder(settings)
    _check_key(settings)
    with bind(settings.listen) as bound:
        url = url_of(settings.listen, bound)
        run_api(settings, bound, lambda: on_ready(url))


def reconciler_alone(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Run the reconciler in this process, until SIGTERM or SIGINT."""
    set_up_logs("reconciler")
    make_folder(settings)
    _check_key(settings)
    _reconcile(settings, on_ready)


def _check_key(settings: Settings) -> None:
    with open_store(settings, single=False) as store:
        check_key(store, settings)


def supervised_api(descriptor: int) -> None:
    from distrain.service.process.api_process import run_api

    set_up_logs("api")
    settings = _settings_of_supervisor()
    with socket.socket(fileno=descriptor) as bound:
        bound.set_inheritable(False)
        run_api(settings, bound, _say_ready)


def supervised_reconciler() -> None:
    set_up_logs("reconciler")
    _reconcile(_settings_of_supervisor(), _say_ready)


def _reconcile(settings: Settings, on_ready: Callable[[], None]) -> None:
    from distrain.service.reconcile.reconciler import run_reconciler

    stop = threading.Event()
    with on_sigterm(lambda *_: stop.set()):
        on_ready()
        with suppress(KeyboardInterrupt):
            run_reconciler(settings, stop)


def _settings_of_supervisor() -> Settings:
    # Unbuffered: the thread waits for the end of what this line begins.
    with os.fdopen(os.dup(0), "rb", buffering=0) as given:
        settings = Settings(**json.loads(given.readline()))
    threading.Thread(target=_end_with_the_supervisor, daemon=True).start()
    return settings


def _end_with_the_supervisor() -> None:
    """Stop this process when the supervisor's end of standard input is closed."""
    import signal

    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


BACKLOG = 1024
SOCKET_MODE = 0o660


def bind(listen: Listen) -> socket.socket:
    """A listening socket by the settings; port 0 takes a free one (ClusterError, OutputError)."""
    if listen.unix_socket is not None:
        return _bind_unix(listen.unix_socket)
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM
        )
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ClusterError(
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror}",
            hint="Another program has the port: choose another --port, or listen.port."
            if error.errno == errno.EADDRINUSE
            else "Check listen.host and listen.port.",
        ) from error
    return bound


def url_of(listen: Listen, bound: socket.socket) -> str:
    """The address for people, with the port that the socket really has."""
    if listen.unix_socket is not None or listen.public_url:
        return listen.url
    return listen.model_copy(update={"port": bound.getsockname()[1]}).url


def _bind_unix(path: Path) -> socket.socket:
    if path.exists() and _answers(path):
        raise ClusterError(
            "another program listens on the Unix socket",
            where={"socket": str(path)},
            hint="Stop it, or choose another listen.unix_socket.",
        )
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
        os.chmod(path, SOCKET_MODE)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OutputError(
            f"cannot make the Unix socket: {error.strerror or error}",
            where={"socket": str(path)},
            hint="Its folder must exist and be writable; its path has at most 107 characters.",
        ) from error
    return bound


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
