"""Programs that measure, in processes of their own beside workers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from distrain.diagnostics.bench.document import Measure
from distrain.diagnostics.bench.measuring.hosts import ask, one_per_host
from distrain.diagnostics.bench.measuring.sizes import Sizes
from distrain.errors import ClusterError

LIMIT_S = 3600
"""When processes end, whatever happens to those who started them."""


async def run_program(
    name: str, words: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a module of this folder with words on its stdin; its `answer`, or its `error`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", f"{__package__}.{name}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate(json.dumps(words).encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return {"error": last[0] if last else f"exit code {process.returncode}"}
    return {"answer": json.loads(output.splitlines()[-1])}


def raise_first(answers: Mapping[str, Any], what: str, doctor: str) -> None:
    """Raise `ClusterError` of the program that failed first, if one did."""
    failed = {
        address: answer["error"] for address, answer in answers.items() if answer.get("error")
    }
    if not failed:
        return
    # Who lost a peer says so later than the one that failed, and at greater length.
    worker, error = min(failed.items(), key=lambda item: "timed out" in item[1].lower())
    raise ClusterError(
        f"a process that measures {what} failed: {error}",
        where={"worker": worker},
        hint=f"`distrain doctor --cluster --scheduler ADDRESS` {doctor}.",
    )


def measure_gpus(
    client: Any, sizes: Sizes
) -> tuple[list[Measure], dict[str, list[dict[str, Any]]]]:
    """Measure the GPUs that one worker of each host sees; all hosts at once. Facts by host."""
    hosts = one_per_host(client)
    words = {
        "gpu_bytes": sizes.gpu_bytes,
        "product_rows": sizes.product_rows,
        "product_s": sizes.product_s,
        "repeats": sizes.repeats,
        "limit_s": LIMIT_S,
    }
    answers = ask(client, run_program, "gpus", words, workers=list(hosts.values()))
    raise_first(answers, "GPUs", "looks at drivers and at free memory of GPUs")
    told = {host: answers[address]["answer"] for host, address in hosts.items()}
    measures = [
        Measure(name, f"node {host} {place}", _unit(name), tuple(rates), _size(name, sizes))
        for host, answer in told.items()
        for name, place, rates in answer["measures"]
    ]
    return measures, {host: answer["facts"] for host, answer in told.items()}


def _unit(name: str) -> str:
    return "flop/s" if name == "gpu.product" else "bytes/s"


def _size(name: str, sizes: Sizes) -> int:
    return 0 if name == "gpu.product" else sizes.gpu_bytes
