"""`python -m distrain.diagnostics.bench.measuring.gpus`: rates of a host's GPUs.

Reads sizes from stdin as JSON, and writes measures of all visible GPUs to stdout as JSON.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

_AT_ONCE = 10
"""Number of operations queued on a GPU between synchronizations."""
_WINDOW_S = 0.1
_Work = tuple[float, Callable[[], object]]


def rates_of(device: torch.device, request: dict[str, Any]) -> dict[str, list[float]]:
    """Return a device's bytes/s in each repetition, by the measure's name.

    The measures are the copy and triad of STREAM in the device's memory, and copies from and to the
    host.
    """
    count = int(request["gpu_bytes"]) // 4
    first, second = (torch.ones(count, device=device) for _ in range(2))
    out = torch.empty(count, device=device)
    host = torch.ones(count, pin_memory=device.type == "cuda")
    works: dict[str, _Work] = {
        "gpu.copy": (8 * count, lambda: out.copy_(first)),
        "gpu.triad": (12 * count, lambda: torch.add(first, second, alpha=3.0, out=out)),
        "gpu.from_host": (4 * count, lambda: out.copy_(host, non_blocking=True)),
        "gpu.to_host": (4 * count, lambda: host.copy_(out, non_blocking=True)),
    }
    repeats = int(request["repeats"])
    return {name: _rates(work, device, repeats, _WINDOW_S) for name, work in works.items()}


def product_rates(device: torch.device, request: dict[str, Any]) -> list[float]:
    """Return FLOP/s of products of square bfloat16 matrices, by repetition.

    All repetitions together take about `product_s`.
    """
    rows, repeats = int(request["product_rows"]), int(request["repeats"])
    left = torch.randn(rows, rows, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(left)
    work = (2.0 * rows**3, lambda: torch.mm(left, left, out=product))
    return _rates(work, device, repeats, request["product_s"] / repeats)


def peer_rates(
    devices: list[torch.device], request: dict[str, Any]
) -> Iterator[tuple[str, int, int, list[float]]]:
    """Yield (measure's name, source, target, bytes/s of each repetition) of copies between devices.

    Source and target are indices of devices; each ordered pair is measured. Without peer access,
    the copies go through the host, and the measure is `gpu.peer_by_host` instead of `gpu.peer`.
    """
    count = int(request["gpu_bytes"]) // 4
    for i, source in enumerate(devices):
        for j, target in enumerate(devices):
            if i != j:
                is_direct = torch.cuda.can_device_access_peer(target, source)
                sent, got = torch.ones(count, device=source), torch.empty(count, device=target)
                work = (4.0 * count, lambda got=got, sent=sent: got.copy_(sent, non_blocking=True))
                name = "gpu.peer" if is_direct else "gpu.peer_by_host"
                yield name, i, j, _rates(work, target, int(request["repeats"]), _WINDOW_S)


def _rates(work: _Work, device: torch.device, repeats: int, window_s: float) -> list[float]:
    amount, operation = work
    return [_rate(operation, amount, device, window_s) for _ in range(repeats + 1)][1:]


def _rate(
    operation: Callable[[], object], amount: float, device: torch.device, window_s: float
) -> float:
    done, start_s = 0, time.perf_counter()
    while True:
        for _ in range(_AT_ONCE):
            operation()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += _AT_ONCE
        taken_s = time.perf_counter() - start_s
        if taken_s >= window_s:
            return amount * done / taken_s


def _gpus(request: dict[str, Any]) -> list[tuple[str, str, list[float]]]:
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    measures = [
        (name, f"gpu {index}", rates)
        for index, device in enumerate(devices)
        for name, rates in rates_of(device, request).items()
    ]
    measures += [
        (name, f"gpu {source} > gpu {target}", rates)
        for name, source, target, rates in peer_rates(devices, request)
    ]
    torch.cuda.empty_cache()
    with ThreadPoolExecutor(max(1, len(devices))) as pool:  # at once: GPUs share power and cooling
        products = [pool.submit(product_rates, device, request) for device in devices]
        measures += [("gpu.product", f"gpu {i}", one.result()) for i, one in enumerate(products)]
    return measures


def main() -> None:
    request = json.load(sys.stdin)
    signal.alarm(int(request["limit_s"]))
    print(json.dumps(_gpus(request)), flush=True)


if __name__ == "__main__":
    main()
