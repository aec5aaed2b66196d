"""Reads the JSON documents that a scheduler's dashboard serves of its jobs."""

import json
import os
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from distrain.errors import ClusterError, InputError
from distrain.monitor.token import TOKEN_VARIABLE, token_of_environment

DEFAULT_URL = "http://127.0.0.1:8787"
TIMEOUT_S = 10.0

_PRELOAD_HINT = (
    "Start the scheduler with `dask scheduler --preload distrain.preload`, or train on it once."
)


class Dashboard:
    """One scheduler's dashboard.

    Args:
        url: Where it is, as `distrain train` prints it; behind a proxy, with the prefix.
        token: What it asks for, if it asks.

    Raises:
        InputError: This is no URL of HTTP.
    """

    def __init__(self, url: str, token: str | None = None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(
                f"'{url}' is no address of a dashboard", hint=f"It looks like {DEFAULT_URL}."
            )
        path = parts.path.rstrip("/").removesuffix("/status").removesuffix("/distrain")
        self.url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self._token = token

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, the newest first.

        Raises:
            ClusterError: It cannot be read.
        """
        found: list[dict[str, Any]] = self._get("jobs")["jobs"]
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        """One job with its ranks.

        Raises:
            InputError: It knows no such job.
            ClusterError: It cannot be read.
        """
        return self._get(f"jobs/{quote(job_id, safe='')}")

    def metrics(self, job_id: str, since: str = "") -> dict[str, Any]:
        """A job's curves, or what is new of them since a cursor.

        Raises:
            InputError: It knows no such job, or no such cursor.
            ClusterError: It cannot be read.
        """
        cursor = f"?since={quote(since, safe='')}" if since else ""
        return self._get(f"jobs/{quote(job_id, safe='')}/metrics{cursor}")

    def _get(self, what: str) -> dict[str, Any]:
        url = f"{self.url}/distrain/{what}"
        request = Request(url, headers={"Accept": "application/json"})
        if self._token:  # for this server alone, wherever it may send us
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                document = json.load(answer)
        except HTTPError as error:
            with error:
                raise _refused(error, url) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ClusterError(
                f"cannot reach the dashboard: {reason}",
                where={"url": url},
                hint="Name it with --dashboard, as `distrain train` prints it, or its scheduler "
                "with --scheduler.",
            ) from None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ClusterError("this is no dashboard of distrain", where={"url": url})
        return document


def dashboard_of(scheduler: str | None, url: str | None) -> Dashboard:
    """The dashboard that options name: a URL, a scheduler, or the usual place on this machine.

    Raises:
        InputError: The URL is none.
        ClusterError: The scheduler does not answer, or has no dashboard; or the environment's token
            cannot be used.
    """
    token = token_of_environment() if os.environ.get(TOKEN_VARIABLE) else None
    if url is None and scheduler is not None:
        url = _url_from_scheduler(scheduler)
    return Dashboard(url or DEFAULT_URL, token)


def _url_from_scheduler(scheduler: str) -> str:
    from distrain.cluster import open_cluster

    with open_cluster(scheduler=scheduler, num_workers=0) as client:
        port = client.scheduler_info().get("services", {}).get("dashboard")
        host = urlsplit(client.scheduler.address).hostname
    if not port:
        raise ClusterError(
            "the scheduler has no dashboard",
            where={"scheduler": scheduler},
            hint="Start it with --dashboard, which needs the package bokeh.",
        )
    return f"http://{f'[{host}]' if ':' in (host or '') else host}:{port}"


def _refused(error: HTTPError, url: str) -> ClusterError | InputError:
    if error.code == 401:
        return ClusterError(
            "the dashboard asks for a token, and this is not it",
            where={"url": url},
            hint=f"Put the token that the scheduler was started with into {TOKEN_VARIABLE}.",
        )
    try:
        told = json.load(error)
        return InputError(told["error"], where={"url": url}, hint=told.get("hint"))
    except (ValueError, TypeError, KeyError):
        text = f"the dashboard answered {error.code} {error.reason}"
        return ClusterError(text, where={"url": url}, hint=_PRELOAD_HINT)
