"""Reads the JSON documents about jobs from a scheduler's dashboard."""

import json
import os
import socket
import ssl
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from distrain.errors import ClusterError, InputError
from distrain.workers.secrets import TOKEN_VARIABLE, token_of_environment

DEFAULT_URL = "http://127.0.0.1:8787"
TIMEOUT_S = 10.0

_PRELOAD_HINT = (
    "Start the scheduler with `dask scheduler --preload distrain.preload`, or train on it once."
)


class Dashboard:
    """One scheduler's dashboard at a URL, which includes the path prefix of a proxy.

    Its methods raise `ClusterError` if the dashboard cannot be read, and `InputError` for an
    unknown job.
    """

    def __init__(self, url: str, token: str | None = None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(
                f"'{url}' is not the address of a dashboard", hint=f"It looks like {DEFAULT_URL}."
            )
        path = parts.path.rstrip("/").removesuffix("/status").removesuffix("/distrain")
        self.url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self._token = token

    def jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self._get("jobs")["jobs"]
        return jobs

    def job(self, job_id: str) -> dict[str, Any]:
        return self._get(f"jobs/{quote(job_id, safe='')}")

    def _get(self, path: str) -> dict[str, Any]:
        url = f"{self.url}/distrain/{path}"
        request = Request(url, headers={"Accept": "application/json"})
        if self._token:  # not sent to other servers after a redirect
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            # Without the environment's proxies, which would get the token.
            opener = build_opener(ProxyHandler({}), HTTPSHandler(context=_tls_context()))
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                document = json.load(answer)
        except HTTPError as error:
            with error:
                raise _refused(error, url) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ClusterError(
                f"cannot reach the dashboard: {reason}",
                where={"url": url},
                hint="Set its address with --dashboard, as `distrain train` prints it, or its "
                "scheduler "
                "with --scheduler.",
            ) from None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ClusterError("not a dashboard of distrain", where={"url": url})
        return document


def dashboard_of(scheduler: str | None, url: str | None) -> Dashboard:
    """Return the dashboard at a URL, of a scheduler, or at the default address here."""
    token = token_of_environment() if os.environ.get(TOKEN_VARIABLE) else None
    if url is None and scheduler is not None:
        url = _url_from_scheduler(scheduler)
    return Dashboard(url or DEFAULT_URL, token)


def _url_from_scheduler(scheduler: str) -> str:
    from distrain.workers.sources import connect

    with connect(scheduler) as client:
        port = client.scheduler_info().get("services", {}).get("dashboard")
        host = urlsplit(client.scheduler.address).hostname or ""
    if not port:
        raise ClusterError(
            "the scheduler has no dashboard",
            where={"scheduler": scheduler},
            hint="Start it with --dashboard, which needs the package bokeh.",
        )
    scheme = "https" if _speaks_tls(host, port) else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _tls_context() -> ssl.SSLContext:
    """Trust the system's authorities, and that of Dask's configuration (`--tls-ca-file`)."""
    import dask

    context = ssl.create_default_context()
    if authority := dask.config.get("distributed.comm.tls.ca-file", None):
        context.load_verify_locations(authority)
    return context


def _speaks_tls(host: str, port: int) -> bool:
    """Return True if the server answers a TLS handshake, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_S) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except OSError:
        return False


def _refused(error: HTTPError, url: str) -> ClusterError | InputError:
    if error.code == 401:
        return ClusterError(
            "the dashboard rejects the token, or requires one",
            where={"url": url},
            hint=f"Set {TOKEN_VARIABLE} to the scheduler's token.",
        )
    try:
        document = json.load(error)
        return InputError(document["error"], where={"url": url}, hint=document.get("hint"))
    except (ValueError, TypeError, KeyError):
        text = f"the dashboard answered {error.code} {error.reason}"
        return ClusterError(text, where={"url": url}, hint=_PRELOAD_HINT)
