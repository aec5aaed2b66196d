"""An existing Dask cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distrain.errors import ClusterError

CONNECT_TIMEOUT_S = 15.0


@contextmanager
def connect(address: str, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Iterator[Any]:
    """Yield a client of the scheduler at `address`; the cluster stays when it closes.

    Raises:
        ClusterError: The scheduler does not answer.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=timeout_s)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"cannot reach the Dask scheduler: {error}",
            where={"scheduler": address},
            hint="Start one with `dask scheduler --preload distrain.preload`, or leave "
            "--scheduler out to use a local cluster.",
        ) from error
    with client:
        yield client
