"""Functions on a cluster's workers, and the hosts that these are on."""

from collections.abc import Callable
from typing import Any

from distributed.comm.addressing import get_address_host

from distrain.errors import ClusterError


def workers_by_host(client: Any) -> dict[str, list[str]]:
    """The addresses of a cluster's workers, by their host in Dask; `ClusterError` for none."""
    found: dict[str, list[str]] = {}
    for address in sorted(client.scheduler_info(n_workers=-1)["workers"]):
        found.setdefault(get_address_host(address), []).append(address)
    if not found:
        raise ClusterError(
            "the cluster has no worker to measure",
            where={"scheduler": client.scheduler.address},
            hint="Start some with `dask worker ADDRESS`.",
        )
    return found


def one_per_host(client: Any) -> dict[str, str]:
    return {host: workers[0] for host, workers in workers_by_host(client).items()}


def ask(client: Any, function: Callable[..., Any], *words: Any, workers: list[str]) -> Any:
    """The answers of some workers, by address; `ClusterError` if one cannot answer."""
    try:
        return client.run(function, *words, workers=workers)
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise  # of a file, which whoever wrote it explains
        raise _could_not(error) from error
    except Exception as error:  # a worker that went, or that has another version
        raise _could_not(error) from error


def _could_not(error: Exception) -> ClusterError:
    return ClusterError(
        f"a worker could not measure: {type(error).__name__}: {error}",
        hint="Workers need the same distrain as this machine: `distrain doctor --cluster` compares "
        "them.",
    )
