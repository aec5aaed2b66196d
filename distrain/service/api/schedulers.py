"""Requests that a cluster's scheduler answers: the API asks it while its own caller waits."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from distrain.errors import ClusterError
from distrain.service.api.dependencies import Parts
from distrain.service.api.problems import Problem
from distrain.service.clusters import SchedulerClient, Unreachable, make_launcher

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
