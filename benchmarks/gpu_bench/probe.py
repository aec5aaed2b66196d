"""Describes the GPU, and measures how fast it copies and multiplies.

    python benchmarks/gpu_bench/probe.py look
    python benchmarks/gpu_bench/probe.py rates [--small]

It runs in its own process, so that it holds no GPU memory while others are measured. Each command
prints one line of JSON. `--small` is for rehearsals on a CPU.

Rates are medians of `REPEATS` timings after `WARM_UPS` warm-ups. A timing covers as many calls in a
row as take about `TIMING_S`, between two CUDA events of one stream; timing a single call of a
millisecond would include its launch. Copies within a device count bytes read and bytes written;
copies between host and GPU count each byte once. Matrices hold random numbers: zeros draw less
power, and are faster than real data.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

REPEATS, WARM_UPS = 9, 3
TIMING_S = 0.03
MIB = 2**20
SIZES = {
    False: {"copy_bytes": 2048 * MIB, "host_bytes": 256 * MIB, "rows": 8192, "places": 1_703_936},
    True: {"copy_bytes": 32 * MIB, "host_bytes": 16 * MIB, "rows": 512, "places": 26 * 1024},
}
SHARE_OF_FREE = 0.2


def main() -> None:
    """Run the command and print its result."""
    what, *options = sys.argv[1:]
    print(json.dumps(look() if what == "look" else rates("--small" in options)))


def look() -> dict[str, Any]:
    """Return versions and devices as torch sees them."""
    told: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    told["available"] = torch.cuda.is_available()
    told["devices"] = []
    if not told["available"]:
        return told | {"why_not": why_not()}
    told["cudnn"] = torch.backends.cudnn.version()
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        told["devices"].append(
            {
                "name": about.name,
                "capability": f"{about.major}.{about.minor}",
                "multiprocessors": about.multi_processor_count,
                "memory_bytes": total,
                "memory_free_bytes": free,
                "l2_bytes": getattr(about, "L2_cache_size", None),
            }
        )
    return told


def why_not() -> str:
    """Return torch's error when it is asked to use a GPU."""
    try:
        torch.cuda.init()
    except Exception as error:  # any error is the answer
        return str(error).strip().splitlines()[0]
    return "torch finds no GPU"


def rates(small: bool) -> dict[str, Any]:
    """Return bytes/s and FLOP/s of the first GPU, or of the CPU in a rehearsal."""
    device = "cpu" if small else "cuda"
    sizes = dict(SIZES[small])
    if device == "cuda":
        free = int(torch.cuda.mem_get_info()[0] * SHARE_OF_FREE)
        sizes["copy_bytes"] = min(sizes["copy_bytes"], free)
    told: dict[str, Any] = {"device": device, **sizes, "repeats": REPEATS}
    told["copy_bytes_per_s"] = copy_rate(device, sizes["copy_bytes"])
    if device == "cuda":
        told |= host_rates(sizes["host_bytes"])
    told["flops_per_s"] = matrix_rates(device, sizes["rows"])
    told["write_places_s"] = writing_places(device, sizes["places"])
    if device == "cuda":
        told["recording"] = recording()
    return told


def writing_places(device: str, places: int) -> dict[str, float]:
    """Return the seconds to scatter `places` numbers, as each route does, by deterministic mode.

    torch's deterministic mode applies to the whole process. While a step's dense layers switch
    it on, it also applies to the thread that makes the next route and to the reader that fills the
    next batch on the GPU.
    """
    order = torch.randperm(places, device=device)
    target, numbers = torch.empty_like(order), torch.arange(places, device=device)
    took_s = {}
    for name, on in (("as usual", False), ("deterministic", True)):
        torch.use_deterministic_algorithms(on, warn_only=True)
        took_s[name] = seconds(lambda: target.__setitem__(order, numbers), device)
    torch.use_deterministic_algorithms(False)
    return took_s


def recording() -> dict[str, float]:
    """Return the cost of recording a CUDA graph of one operation.

    `torch.cuda.graph` first waits for the GPU, and some versions of torch release cached memory,
    which concurrent loaders must then allocate again.
    """
    values = torch.ones(1, device="cuda")
    torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")  # freed at once, and so cached
    torch.cuda.synchronize()
    held, began = torch.cuda.memory_reserved(), time.perf_counter()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        values.add_(1)
    took_s = time.perf_counter() - began
    return {"took_s": took_s, "given_back_bytes": float(held - torch.cuda.memory_reserved())}


def copy_rate(device: str, size: int) -> float:
    """Return bytes read and written per second, for a copy within the device's memory."""
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * size / seconds(lambda: target.copy_(source), device)


def host_rates(size: int) -> dict[str, float]:
    """Return bytes per second between page-locked host memory and the GPU, in both directions."""
    host = torch.ones(size, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device="cuda")
    to = seconds(lambda: there.copy_(host, non_blocking=True), "cuda")
    back = seconds(lambda: host.copy_(there, non_blocking=True), "cuda")
    return {"to_device_bytes_per_s": size / to, "from_device_bytes_per_s": size / back}


def matrix_rates(device: str, rows: int) -> dict[str, float]:
    """Return FLOP/s of products of two square matrices, in each precision of the device."""
    made = {}
    for name in ("fp32", "tf32", "bf16") if device == "cuda" else ("fp32", "bf16"):
        dtype = torch.bfloat16 if name == "bf16" else torch.float32
        a, b = (torch.randn(rows, rows, device=device).to(dtype) for _ in range(2))
        product = torch.empty_like(a)
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        made[name] = 2 * rows**3 / seconds(lambda: torch.mm(a, b, out=product), device)  # noqa: B023
    return made


def seconds(call: Callable[[], Any], device: str) -> float:
    """Return the seconds of one call, the median over the repeats."""
    for _ in range(WARM_UPS):
        call()
    calls = max(1, round(TIMING_S / timed(call, 1, device)))
    return statistics.median(timed(call, calls, device) for _ in range(REPEATS))


def timed(call: Callable[[], Any], calls: int, device: str) -> float:
    """Return the mean seconds of one of `calls` calls."""
    if device == "cpu":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - began) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / calls


if __name__ == "__main__":
    main()
