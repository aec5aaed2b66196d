"""Reads a scheduler's jobs for `distrain top`, at its dashboard's URL or at its own address."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import httpx2

from distrain.client.client import Client
from distrain.client.credentials import SERVER_VARIABLE
from distrain.client.errors import NotAuthorised, NotFound, ServiceError, ServiceUnavailable
from distrain.client.retries import certificate_hint
from distrain.errors import ClusterError, InputError
from distrain.jobs.api_answers import Job
from distrain.workers.secrets import TOKEN_VARIABLE, token_of_environment

DEFAULT_URL = "http://127.0.0.1:8787"

_PRELOAD_HINT = (
    "Start the scheduler with `dask scheduler --preload distrain.preload`, or train on it once."
)


def read_jobs(client: Client, job_id: str | None) -> tuple[list[Job], Job | None]:
    """Return all jobs, the newest first, and one of them with its ranks.

    The one job is that which `Client.find` returns for `job_id`. If `job_id` is `None`, it is the
    newest job that has not ended, or if all have ended, the newest; `None` if there are no jobs.
    Raises `ClusterError` if the dashboard cannot be read, and `NotFound` if there is no job
    `job_id`.
    """
    where = {"url": client.address}
    try:
        jobs = list(client.jobs(page_jobs=200))
        if job_id is None:
            newest = next((job for job in jobs if not job.is_final), jobs[0] if jobs else None)
            return jobs, None if newest is None else client.job(newest.id)
        return jobs, client.find(job_id)
    except NotFound:
        raise
    except NotAuthorised:
        raise ClusterError(
            "the dashboard requires a token, which is missing or wrong",
            where=where,
            hint=f"Put the token that the scheduler was started with into {TOKEN_VARIABLE}.",
        ) from None
    except ServiceUnavailable as error:
        hint = (
            "Name it with --dashboard, as `distrain train` prints it (with TLS it begins with "
            "https://), or its scheduler with --scheduler."
        )
        if os.environ.get(SERVER_VARIABLE):
            hint += (
                f" {SERVER_VARIABLE} names a service, which this command does not ask: `distrain "
                f"jobs` lists its jobs. The scheduler's own token goes into {TOKEN_VARIABLE}."
            )
        hint = certificate_hint(error, "--tls-ca-file") or hint
        text = f"cannot reach the dashboard: {error.message}"
        raise ClusterError(text, where=where, hint=hint) from None
    except ServiceError as error:
        text = f"this is not a dashboard of distrain: {error.message}"
        raise ClusterError(text, where=where, hint=_PRELOAD_HINT) from None


@contextmanager
def dashboard_of(scheduler: str | None, url: str | None) -> Iterator[Client]:
    """Yield a client of the dashboard at `url`, or of the scheduler at the address `scheduler`.

    `url` takes precedence; without both, it is `DEFAULT_URL`.
    """
    if url is None and scheduler is not None:
        from distrain.launch.scheduler_api import scheduler_api
        from distrain.workers.open_cluster import connect

        with connect(scheduler) as client:
            yield scheduler_api(client)
        return
    with _client_of(url or DEFAULT_URL) as found:
        yield found


def _client_of(url: str) -> Client:
    """Return a client for the scheduler whose dashboard is at `url`.

    `/status` and `/distrain` at the end of `url` are removed; the path prefix of a proxy is kept.
    Raises `InputError` if `url` is not an HTTP address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(
            f"'{url}' is not the address of a dashboard", hint=f"It looks like {DEFAULT_URL}."
        )
    path = parts.path.rstrip("/").removesuffix("/status").removesuffix("/distrain")
    address = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    token = token_of_environment() if os.environ.get(TOKEN_VARIABLE) else None
    # Ignores proxies of the environment, which could read the token.
    transport = httpx2.HTTPTransport(verify=_tls_context(), trust_env=False)
    return Client.of_scheduler(address, transport, url=address, token=token)


def _tls_context() -> ssl.SSLContext:
    """Return a context that trusts the system's CAs and `--tls-ca-file` of Dask's configuration."""
    import dask

    context = ssl.create_default_context()
    if ca_file := dask.config.get("distributed.comm.tls.ca-file", None):
        context.load_verify_locations(ca_file)
    return context
