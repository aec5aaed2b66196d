"""Measures what Dask itself needs to deliver reports to a scheduler, without processing them.

A process opens a stream per rank to a real scheduler in this process, as workers do, and sends
reports in real time; the scheduler's handler only counts them. The additional time of the event
loop, compared with an idle one, is Dask's: reading sockets, unpacking messages, switching tasks.
"""

import asyncio
import logging
import multiprocessing
import resource
import time
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler
from distributed.batched import BatchedSend
from distributed.comm import connect

from benchmarks.views_bench.simulation import metrics_state, report_of_steps
from distrain.jobs.events import Heartbeat, to_json

OP = "count-report"
IDLE_S = 4.0


@dataclass(frozen=True)
class Received:
    """The time that a scheduler's event loop spent on receiving reports.

    Attributes:
        num_ranks: Number of streams.
        reports_per_s: Reports per second of each rank.
        messages_per_s: Messages received per second, heartbeats included.
        idle_pct: Share of the event loop, in percent, before the reports.
        receive_pct: Additional share during the reports.
    """

    num_ranks: int
    reports_per_s: int
    messages_per_s: float
    idle_pct: float
    receive_pct: float


def receive(num_ranks: int, reports_per_s: int, rows: int, for_s: float) -> Received:
    """Count reports that arrive in real time, for `for_s` seconds."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a socket per rank, at both ends
    return asyncio.run(_receive(num_ranks, reports_per_s, rows, for_s))


async def _receive(num_ranks: int, reports_per_s: int, rows: int, for_s: float) -> Received:
    came = 0

    def count(**_: Any) -> None:
        nonlocal came
        came += 1

    async with Scheduler(dashboard=False, host="127.0.0.1", port=0) as scheduler:
        scheduler.stream_handlers[OP] = count
        idle_pct = await _busy_pct(IDLE_S)
        context = multiprocessing.get_context("spawn")
        arguments = (scheduler.address, num_ranks, reports_per_s, rows)
        sender = context.Process(target=_send, args=arguments, daemon=True)
        sender.start()
        try:
            while came < 2 * num_ranks:  # every rank has sent a report, so all are connected
                await asyncio.sleep(0.05)
                assert sender.is_alive(), "the process that sends has ended"
            before, start_s = came, time.monotonic()
            busy_pct = await _busy_pct(for_s)
            per_s = (came - before) / (time.monotonic() - start_s)
        finally:
            sender.terminate()
            sender.join()
    return Received(num_ranks, reports_per_s, per_s, idle_pct, busy_pct - idle_pct)


async def _busy_pct(for_s: float) -> float:
    """Return the processor time of this thread, which runs the event loop, in percent."""
    thread_s, start_s = time.thread_time(), time.monotonic()
    await asyncio.sleep(for_s)
    return 100 * (time.thread_time() - thread_s) / (time.monotonic() - start_s)


def _send(address: str, num_ranks: int, reports_per_s: int, rows: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_send_all(address, num_ranks, reports_per_s, rows))


async def _send_all(address: str, num_ranks: int, reports_per_s: int, rows: int) -> None:
    states = [metrics_state(seed, rows) for seed in range(16)]
    streams = []
    for number in range(num_ranks):
        comm = await connect(address)
        # The scheduler handles a client's stream like a worker's, and it needs no worker.
        hello = {"op": "register-client", "client": f"rank-{number}", "reply": False}
        await comm.write({**hello, "versions": {}})
        stream = BatchedSend(interval="2ms")
        stream.start(comm)
        streams.append(stream)
    start_s = time.monotonic() + 0.5
    ranks = (_rank(r, streams[r], states, start_s, reports_per_s, rows) for r in range(num_ranks))
    await asyncio.gather(*ranks)


async def _rank(
    rank: int, stream: Any, states: list[Any], start_s: float, reports_per_s: int, rows: int
) -> None:
    """Send one rank's reports until this process is ended; each rank has another offset in time."""
    offset_s = rank / 64 % 1.0
    number = 0
    while True:
        number += 1
        due_s = start_s + offset_s + number / reports_per_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        state = states[(rank + number) % len(states)]
        events = [to_json(report_of_steps(rank, 10 * number, reports_per_s, rows, state))]
        if number % reports_per_s == 0:
            events.append(to_json(Heartbeat(rank, 10 * number, number, "exchange", "peers")))
        for event in events:
            stream.send({"op": OP, "job_id": "job", "attempt": 1, "event": event})
