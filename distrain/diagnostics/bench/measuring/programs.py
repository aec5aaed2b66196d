"""Runs measuring programs in separate processes beside workers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from distrain.diagnostics.bench.measuring.hosts import ask, one_per_host
from distrain.diagnostics.bench.measuring.sizes import Sizes
from distrain.diagnostics.bench.results import Measure
from distrain.errors import ClusterError

LIMIT_S = 3600
"""Seconds after which processes end, even if the worker that started them is gone."""


async def run_program(
    name: str, request: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run the module `name` of this folder in a new process, with the request as JSON on stdin.

    Returns `{"answer": ...}` with the last line of its output, parsed as JSON. If the process
    failed, returns `{"error": ...}` with the last line of its stderr, or its exit code. If
    cancelled, kills the process group.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", f"{__package__}.{name}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate(json.dumps(request).encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return {"error": last[0] if last else f"exit code {process.returncode}"}
    return {"answer": json.loads(output.splitlines()[-1])}


def raise_first(answers: Mapping[str, Any], subject: str, doctor: str) -> None:
    """Raise `ClusterError` if a program failed.

    The error is about the first failed program, preferably one that did not time out.

    Args:
        answers: The results of `run_program`, by worker.
        subject: What the programs measure, for the message.
        doctor: What `distrain doctor` does about it, for the hint.
    """
    failed = {
        address: answer["error"] for address, answer in answers.items() if answer.get("error")
    }
    if not failed:
        return
    # Prefer the original failure to timeouts of programs that waited for the failed one.
    worker, error = min(failed.items(), key=lambda item: "timed out" in item[1].lower())
    raise ClusterError(
        f"a process that measures {subject} failed: {error}",
        where={"worker": worker},
        hint=f"`distrain doctor --scheduler ADDRESS` {doctor}.",
    )


def measure_gpus(client: Any, sizes: Sizes) -> list[Measure]:
    """Measure the GPUs visible to one worker per host, on all hosts at the same time.

    Raises `ClusterError` if the process on a host fails.
    """
    hosts = one_per_host(client)
    request = {
        "gpu_bytes": sizes.gpu_bytes,
        "product_rows": sizes.product_rows,
        "product_s": sizes.product_s,
        "repeats": sizes.repeats,
        "limit_s": LIMIT_S,
    }
    answers = ask(client, run_program, "gpus", request, workers=list(hosts.values()))
    raise_first(answers, "GPUs", "checks drivers and free memory of GPUs")
    return [
        Measure(name, f"node {host} {place}", _unit(name), tuple(rates), _size(name, sizes))
        for host, address in hosts.items()
        for name, place, rates in answers[address]["answer"]
    ]


def _unit(name: str) -> str:
    return "flop/s" if name == "gpu.product" else "bytes/s"


def _size(name: str, sizes: Sizes) -> int:
    return 0 if name == "gpu.product" else sizes.gpu_bytes
