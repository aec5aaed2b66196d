"""The GPUs of this machine, as the driver lists them, without a CUDA context in this process."""

import contextlib
import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

from distrain.doctor.facts import GpuFacts

ANSWER_S = 10.0
_QUERY = "uuid,name,memory.total,memory.free,driver_version"


@dataclass(frozen=True)
class GpusSeen:
    """GPUs in the driver's order, the driver's version, and the newest CUDA that it serves."""

    gpus: list[GpuFacts] = field(default_factory=list)
    driver: str = ""
    cuda: str = ""


def look_at_gpus() -> GpusSeen:
    """Ask NVML, or `nvidia-smi` where NVML's module is not installed; nothing without a driver."""
    with contextlib.suppress(Exception):  # no module, no driver, or one that does not answer it
        return _ask_nvml()
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        return _ask_nvidia_smi()
    return GpusSeen()


def _ask_nvml() -> GpusSeen:
    import pynvml  # type: ignore[import-not-found,unused-ignore]

    pynvml.nvmlInit()
    try:
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            name = _text(pynvml.nvmlDeviceGetName(handle))
            gpus.append(GpuFacts(uuid, name, int(memory.total), int(memory.free)))
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return GpusSeen(gpus, driver, f"{cuda // 1000}.{cuda % 1000 // 10}")
    finally:
        pynvml.nvmlShutdown()


def _ask_nvidia_smi() -> GpusSeen:
    rows = _run("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
    gpus, driver = read_rows(rows)
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", _run("nvidia-smi"))
    return GpusSeen(gpus, driver, cuda[1] if cuda else "")


def read_rows(text: str) -> tuple[list[GpuFacts], str]:
    """The GPUs in the answer of `nvidia-smi`, and the driver's version.

    >>> read_rows("GPU-7f, NVIDIA H100, 81559, 81000, 570.86")[0][0].uuid
    'GPU-7f'
    """
    gpus, driver = [], ""
    for line in filter(str.strip, text.splitlines()):
        uuid, name, total, free, driver = (word.strip() for word in line.split(","))
        gpus.append(GpuFacts(uuid, name, _mebibytes(total), _mebibytes(free)))
    return gpus, driver


def _mebibytes(text: str) -> int:
    return int(text) * 2**20 if text.isdigit() else 0  # [N/A] where memory is the host's


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    return done.stdout


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
