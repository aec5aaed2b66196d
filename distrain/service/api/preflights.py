"""Checks of a spec's data on a worker: one request starts a check, others poll it.

The API itself never opens files that a spec names; a worker of the cluster checks them. A check has
the id `CLUSTER.ID`, where `ID` is its id at the cluster's scheduler; so every API process can look
it up. The scheduler shows it only to the user who started it.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from distrain.errors import ClusterError
from distrain.jobs.api_answers import Answer, Preflight
from distrain.service.api.dependencies import ApiCall, ApiParts
from distrain.service.api.problems import Problem, not_found
from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.decisions.world import Refused, Unreachable

_MOST_OF_CLUSTER, _MOST = 4, 16
"""How many threads of this process may wait for one cluster's scheduler, and for all schedulers.

A scheduler that hangs can thus not block all threads.
"""

_waiting: Counter[str] = Counter()
_lock = threading.Lock()


class PreflightStarted(Answer):
    """A started check of a spec's data, on a worker."""

    url: str = Field(description="The URL of the check's result.")


@contextmanager
def _scheduler_of(service: ApiParts, cluster: str) -> Iterator[SchedulerClient]:
    """Yield a client of a cluster's scheduler.

    Raises the problem `unavailable` if the scheduler does not run or answer, or too many requests
    wait for it.
    """
    with _turn(cluster):
        try:
            address = make_launcher(cluster, service.settings).find()
            if address is None:
                raise _unavailable(cluster, "it is not running")
            tls, service_id = service.settings.clusters[cluster].tls, service.store.service_id
            with SchedulerClient(address.url, address.token, tls, service=service_id) as client:
                yield client
        except (Unreachable, ClusterError) as error:
            raise _unavailable(cluster, "its scheduler does not answer") from error


@contextmanager
def _turn(cluster: str) -> Iterator[None]:
    """Count a request to a cluster's scheduler during the block.

    Raises the problem `unavailable` at once if `_MOST_OF_CLUSTER` requests to this cluster, or
    `_MOST` to all clusters, are counted already.
    """
    with _lock:
        if _waiting[cluster] >= _MOST_OF_CLUSTER or _waiting.total() >= _MOST:
            raise _unavailable(cluster, "other requests are using it")
        _waiting[cluster] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[cluster] -= 1


def _unavailable(cluster: str, why: str) -> Problem:
    detail = f"cluster {cluster} cannot check data now: {why}"
    hint = "Try again, or validate without `data`."
    return Problem("unavailable", detail, hint=hint, retry_after_s=10)


def start_preflight(call: ApiCall, cluster: str, spec: Mapping[str, Any]) -> PreflightStarted:
    """Start a check of a spec's data on a worker of the cluster.

    Raises the problem `unavailable` if the scheduler does not answer or rejects the check now.
    """
    with _scheduler_of(call.service, cluster) as client:
        try:
            number = client.preflight(spec, call.caller.user)
        except Refused as error:
            raise _unavailable(cluster, error.message) from error
    return PreflightStarted(url=f"/v1/preflights/{cluster}.{number}")


def preflight(call: ApiCall, preflight_id: str) -> Preflight:
    """Return the state of a check.

    Raises the problem `not_found` for an unknown id or another user's check, and the problem
    `unavailable` if the cluster's scheduler does not answer.
    """
    cluster, _, number = preflight_id.partition(".")
    if cluster not in call.service.settings.clusters or not re.fullmatch("[0-9a-f]+", number):
        raise not_found("check of that id")
    with _scheduler_of(call.service, cluster) as client:
        try:
            return client.preflight_result(number, call.caller.user)
        except Refused as error:
            raise not_found("check of that id") from error
