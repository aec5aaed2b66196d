"""Checks of a spec's data on a worker: started by one request, asked for by others.

The API opens nothing that a spec names: a cluster's scheduler has a worker look. The id of a check
is signed and names its user, so that any API process can answer, and nobody else can ask.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distrain.errors import ClusterError
from distrain.service.access import sign, signed_text
from distrain.service.api.dependencies import Parts
from distrain.service.api.documents import Preflight, PreflightStarted
from distrain.service.api.problems import Problem, not_found
from distrain.service.clusters import Refused, SchedulerClient, Unreachable, make_launcher
from distrain.service.values import Principal

_MOST_OF_CLUSTER, _MOST = 4, 16
"""Threads of this process that may wait for schedulers: one that hangs leaves the rest of them."""

_waiting: Counter[str] = Counter()
_lock = threading.Lock()


@contextmanager
def scheduler_of(
    service: Parts, cluster: str, what: str, hint: str = "Try again."
) -> Iterator[SchedulerClient]:
    """Yield a client of a cluster's scheduler; `unavailable` while it does not answer.

    Args:
        what: What the cluster is to do, for the error.
    """
    with _turn(cluster, what, hint):
        try:
            launcher = make_launcher(cluster, service.settings, service.store.service_id)
            address = launcher.find()
            if address is None:
                raise unavailable(cluster, "it does not run", what, hint)
            tls, service_id = service.settings.clusters[cluster].tls, service.store.service_id
            with SchedulerClient(address.url, address.token, tls, service=service_id) as client:
                yield client
        except (Unreachable, ClusterError) as error:
            raise unavailable(cluster, "its scheduler does not answer", what, hint) from error


@contextmanager
def _turn(cluster: str, what: str, hint: str) -> Iterator[None]:
    """Hold one of the few turns; a request that finds none does not wait."""
    with _lock:
        if _waiting[cluster] >= _MOST_OF_CLUSTER or _waiting.total() >= _MOST:
            raise unavailable(cluster, "others are asking it already", what, hint)
        _waiting[cluster] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[cluster] -= 1


def unavailable(cluster: str, why: str, what: str, hint: str) -> Problem:
    """The answer while a cluster cannot do what is asked of it."""
    return Problem(
        "unavailable",
        f"cluster {cluster} cannot {what} now: {why}",
        hint=hint,
        retry_after_s=10,
    )


_PURPOSE = "preflight"
_WITHOUT = "Try again, or validate without `data`."


def start_preflight(
    service: Parts, caller: Principal, cluster: str, spec: Mapping[str, Any]
) -> PreflightStarted:
    """Have a worker of a cluster check the data of a spec; `unavailable` while it cannot."""
    with scheduler_of(service, cluster, "check data", _WITHOUT) as client:
        try:
            number = client.preflight(spec, caller.user)
        except Refused as error:
            raise unavailable(cluster, error.message, "check data", _WITHOUT) from error
    text = json.dumps([cluster, number, caller.user])
    return PreflightStarted(url=f"/v1/preflights/{sign(service.key, _PURPOSE, text)}")


def preflight(service: Parts, caller: Principal, preflight_id: str) -> Preflight:
    """A check as far as it is; `not_found` for one that is forgotten or not the caller's."""
    text = signed_text(service.key, _PURPOSE, preflight_id)
    cluster, number, user = json.loads(text) if text else ("", "", "")
    if user != caller.user or cluster not in service.settings.clusters:
        raise not_found("check of that id")
    with scheduler_of(service, cluster, "check data", _WITHOUT) as client:
        try:
            seen = client.preflight_result(number)
        except Refused as error:
            raise not_found("check of that id") from error
    return Preflight(
        state=seen.state,
        notes=list(seen.notes),
        errors=[dict(error) for error in seen.errors],
        error=seen.error,
    )
