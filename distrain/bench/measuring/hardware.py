"""What the hardware of a cluster's hosts says of itself: temperatures, clocks, power."""

import contextlib
from typing import Any

import psutil

from distrain.bench.document import Measure
from distrain.bench.measuring.on_workers import ask, one_per_host


def read_hardware(client: Any) -> list[Measure]:
    """One reading of each host's sensors, of those that it shows; of GPUs where NVML is installed.

    Raises:
        ClusterError: A host does not answer.
    """
    hosts = one_per_host(client)
    answers = ask(client, read_sensors, workers=list(hosts.values()))
    return [
        Measure(name, f"node {host}{part}", unit, (value,))
        for host, address in hosts.items()
        for name, part, unit, value in answers[address]
        if value > 0
    ]


def read_sensors() -> list[tuple[str, str, str, float]]:
    """Of this host: name, the part of it, unit and value. `C`, `Hz` and `W` are units."""
    found = []
    with contextlib.suppress(Exception):  # a machine without such sensors has many ways to say so
        warmest = [
            chip.current for chips in psutil.sensors_temperatures().values() for chip in chips
        ]
        found.append(("cpu.temperature", "", "C", float(max(warmest))))
    with contextlib.suppress(Exception):
        found.append(("cpu.clock", "", "Hz", 1e6 * psutil.cpu_freq().current))
    with contextlib.suppress(Exception):  # no module, no driver, or one that does not answer it
        found += _of_gpus()
    return found


def _of_gpus() -> list[tuple[str, str, str, float]]:
    import pynvml  # type: ignore[import-not-found,unused-ignore]

    pynvml.nvmlInit()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            gpu, part = pynvml.nvmlDeviceGetHandleByIndex(index), f" GPU {index}"
            for name, unit, value in (
                (
                    "gpu.temperature",
                    "C",
                    pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
                ),
                (
                    "gpu.clock",
                    "Hz",
                    1e6 * pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
                ),
                ("gpu.power", "W", pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
            ):
                found.append((name, part, unit, float(value)))
        return found
    finally:
        pynvml.nvmlShutdown()
