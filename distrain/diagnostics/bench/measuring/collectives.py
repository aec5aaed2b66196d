"""Measures collectives of all workers, within and between nodes, and links between nodes."""

import asyncio
import os
from typing import Any
from uuid import uuid4

from distributed.comm.addressing import get_address_host

from distrain.diagnostics.bench.measuring.hosts import ask, workers_by_host
from distrain.diagnostics.bench.measuring.programs import LIMIT_S, raise_first, run_program
from distrain.diagnostics.bench.measuring.sizes import Sizes
from distrain.diagnostics.bench.results import Measure

PEER_S = 60.0
"""Seconds for which a process waits for its peers in each operation."""
_stores: dict[str, Any] = {}


def measure_collectives(client: Any, sizes: Sizes, device: str) -> list[Measure]:
    """Measure collectives and links with a process beside each worker; return [] for one worker.

    The processes find each other by a store on the scheduler, like the ranks of jobs. Rates of
    collectives are those of nccl-tests' `busbw`: bytes per second on a link, independent of the
    number of ranks. Raises `ClusterError` if a process cannot start, or does not reach its peers.
    """
    hosts = workers_by_host(client)
    workers = [address for group in hosts.values() for address in group]
    if len(workers) < 2:
        return []
    key = f"distrain-bench-{uuid4().hex[:12]}"
    host = get_address_host(client.scheduler.address)
    port = client.run_on_scheduler(open_store, key, host)
    request = {
        "store": [host, port],
        "key": key,
        "workers": workers,
        "hosts": [host for host, group in hosts.items() for _ in group],
        "device": device,
        "message_bytes": sizes.message_bytes,
        "message_budget_s": sizes.message_budget_s,
        "link_bytes": sizes.link_bytes,
        "repeats": sizes.repeats,
        "peer_s": PEER_S,
        "limit_s": LIMIT_S,
    }
    try:
        answers = ask(client, run_rank, request, workers=workers)
    finally:
        client.run_on_scheduler(close_store, key)
    raise_first(answers, "collectives", "tests the connections of workers")
    documents = [one for address in workers for one in answers[address]["answer"]]
    return [Measure(**{**one, "values": tuple(one["values"])}) for one in documents]


async def open_store(key: str, host: str) -> int:
    """Open a store on the scheduler, by which the processes find each other; return its port.

    The store is closed after `LIMIT_S`, if `close_store` has not closed it before.
    """
    from distrain.scheduler.rendezvous import Stores

    store = _stores[key] = Stores().open(host)
    asyncio.get_running_loop().call_later(LIMIT_S, _stores.pop, key, None)
    return int(store.port)


async def close_store(key: str) -> None:
    _stores.pop(key, None)


async def run_rank(request: dict[str, Any], dask_worker: Any = None) -> dict[str, Any]:
    """Run a measuring process on a worker; return its `answer` or its `error`."""
    from distrain.workers.network_interface import choose_interface

    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if interface := choose_interface(get_address_host(dask_worker.address)):
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    rank = request["workers"].index(dask_worker.address)
    return await run_program("rank", {**request, "rank": rank}, env)
