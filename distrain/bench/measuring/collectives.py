"""Collectives among processes of all workers, on nodes and between them, and links of nodes."""

import asyncio
import json
import os
import signal
import sys
from typing import Any
from uuid import uuid4

from distributed.comm.addressing import get_address_host

from distrain.bench.document import Measure
from distrain.bench.measuring.hosts import ask, workers_by_host
from distrain.bench.measuring.sizes import Sizes
from distrain.errors import ClusterError

PEER_S = 60.0
"""How long a process waits for its peers in each operation."""
LIMIT_S = 3600
"""When processes end, whatever happens to those who started them."""

_RANK_PROGRAM = (sys.executable, "-m", "distrain.bench.measuring.rank")

_stores: dict[str, Any] = {}


def measure_collectives(client: Any, sizes: Sizes, device: str) -> list[Measure]:
    """Measure with a process per worker, which meet at the scheduler as the ranks of jobs do.

    Rates are those of nccl-tests' `busbw`: bytes on a link, whatever the number of ranks. Raises
    `ClusterError` if a process cannot start, or does not reach its peers.
    """
    hosts = workers_by_host(client)
    workers = [address for group in hosts.values() for address in group]
    if len(workers) < 2:
        return []
    key = f"distrain-bench-{uuid4().hex[:12]}"
    host = get_address_host(client.scheduler.address)
    port = client.run_on_scheduler(open_store, key, host)
    words = {
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
        answers = ask(client, run_rank, words, workers=workers)
    finally:
        client.run_on_scheduler(close_store, key)
    _raise_first(answers)
    documents = [one for address in workers for one in answers[address]["measures"]]
    return [Measure(**{**one, "values": tuple(one["values"])}) for one in documents]


def _raise_first(answers: dict[str, Any]) -> None:
    failed = {
        address: answer["error"] for address, answer in answers.items() if answer.get("error")
    }
    if not failed:
        return
    # Who lost a peer says so later than the one that failed, and at greater length.
    worker, error = min(failed.items(), key=lambda item: "timed out" in item[1].lower())
    raise ClusterError(
        f"a process that measures collectives failed: {error}",
        where={"worker": worker},
        hint="`distrain doctor --cluster --scheduler ADDRESS` tries the connections of workers.",
    )


async def open_store(key: str, host: str) -> int:
    """Open a store for the processes, on the scheduler; returns its port."""
    from distrain.scheduler import Stores

    store = _stores[key] = Stores().open(host)
    asyncio.get_running_loop().call_later(LIMIT_S, _stores.pop, key, None)
    return int(store.port)


async def close_store(key: str) -> None:
    _stores.pop(key, None)


async def run_rank(words: dict[str, Any], dask_worker: Any = None) -> dict[str, Any]:
    """Run a process that measures, on a worker; its `measures`, or its `error`."""
    from distrain.worker import choose_interface

    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if interface := choose_interface(get_address_host(dask_worker.address)):
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    process = await asyncio.create_subprocess_exec(
        *_RANK_PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    rank = words["workers"].index(dask_worker.address)
    try:
        output, errors = await process.communicate(json.dumps({**words, "rank": rank}).encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return {"error": last[0] if last else f"exit code {process.returncode}"}
    return {"measures": json.loads(output.splitlines()[-1])}
