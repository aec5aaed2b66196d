"""Model names of GPUs and CPUs."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_name(device: "torch.device") -> str:
    """Return a GPU's name, or the CPU's model."""
    if device.type != "cuda":
        return cpu_model()
    import torch

    name: str = torch.cuda.get_device_name(device)
    return name


def cpu_model() -> str:
    """Return the CPU's model from `/proc/cpuinfo`, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()
