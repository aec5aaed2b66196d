"""Entry points of the commands: the whole service in one process, or one of its parts."""

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distrain.errors import ClusterError, OutputError, on_sigterm
from distrain.service.clusters.choosing import make_launcher
from distrain.service.process.api_server import ApiServer
from distrain.service.process.logs import set_up_logs
from distrain.service.process.preparing import declare, first_token, make_folder
from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import Listen, Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store, migrate, open_store


@dataclass(frozen=True)
class Serving:
    url: str  # the API's and the page's address
    database: str
    token: tuple[Token, str] | None  # the first admin's token with its text, if it was made now


def serve(
    settings: Settings,
    on_ready: Callable[[Serving], None],
    *,
    stop_clusters: bool = False,
    makes_token: bool = True,
) -> None:
    """Run the service in this process until SIGTERM or SIGINT.

    Args:
        on_ready: Called once the API answers, in this thread.
        stop_clusters: Whether to stop all clusters at the end, which waits for their workers.
        makes_token: Whether to make a token for the first admin, if no admin has one. `on_ready`
            gets its text, so pass False if the output of `on_ready` is stored.

    Raises:
        DistrainError: The service cannot start, or the reconciler failed.
    """
    set_up_logs("serve")
    make_folder(settings)
    with bind(settings.listen) as bound:
        migrate(settings)
        with open_store(settings) as store:
            declare(store, settings)
            made = first_token(store, settings) if makes_token else None
            serving = Serving(url_of(settings.listen, bound), store.db.where, made)
            server = ApiServer(store, settings, lambda: on_ready(serving))
            with _reconciling(store, settings, server):
                server.serve_on(bound)
            if stop_clusters:
                end_clusters(settings)
    if settings.listen.unix_socket:
        settings.listen.unix_socket.unlink(missing_ok=True)


@contextmanager
def _reconciling(store: Store, settings: Settings, server: ApiServer) -> Iterator[None]:
    """Run the reconciler in a thread during the block; if it fails, end the server and raise.

    The whole process then ends, so that its supervisor restarts it.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1, "reconciler") as pool:
        reconciling = pool.submit(Reconciler(settings, store).run, stop)
        reconciling.add_done_callback(lambda _: server.end())
        try:
            yield
        finally:
            stop.set()
        reconciling.result()


def end_clusters(settings: Settings) -> None:
    for name in settings.clusters:
        make_launcher(name, settings).stop()


def api_alone(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Run the API in this process until SIGTERM or SIGINT; raises DistrainError if it cannot start.

    `on_ready` is called with the API's address once the API answers.
    """
    set_up_logs("api")
    make_folder(settings)
    with bind(settings.listen) as bound, open_store(settings, single=False) as store:
        url = url_of(settings.listen, bound)
        ApiServer(store, settings, lambda: on_ready(url)).serve_on(bound)


def reconciler_alone(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Run the reconciler in this process until SIGTERM or SIGINT.

    `on_ready` is called once the database is open. Raises DistrainError if it cannot be opened.
    """
    set_up_logs("reconciler")
    make_folder(settings)
    stop = threading.Event()
    with open_store(settings) as store, on_sigterm(lambda *_: stop.set()):
        on_ready()
        with suppress(KeyboardInterrupt):
            Reconciler(settings, store).run(stop)


BACKLOG = 1024
SOCKET_MODE = 0o660


def bind(listen: Listen) -> socket.socket:
    """Return a listening socket for the settings; port 0 means any free port.

    Raises ClusterError if the address is in use or cannot be listened on, and OutputError if the
    Unix socket cannot be created.
    """
    if listen.unix_socket is not None:
        return _bind_unix(listen.unix_socket)
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM
        )
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise ClusterError(
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror}",
            hint="Another program has the port: choose another --port, or listen.port."
            if error.errno == errno.EADDRINUSE
            else "Check listen.host and listen.port.",
        ) from error


def url_of(listen: Listen, bound: socket.socket) -> str:
    """Return the service's URL for users.

    Unless there is a public URL or a Unix socket, it has the port to which `bound` is bound.
    """
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
            f"cannot create the Unix socket: {error.strerror or error}",
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
