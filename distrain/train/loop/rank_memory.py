"""The memory that a rank holds, and the most that it has ever held."""

import re
import resource
from pathlib import Path

import torch

STATUS_FILE = Path("/proc/self/status")
STATM_FILE = Path("/proc/self/statm")


def peak_memory(device: torch.device) -> dict[str, int]:
    """The process's largest resident size, and the largest sum of tensors on its GPU.

    The first counts everything that the process ever held; the second is 0 on the CPU, and leaves
    out what CUDA and torch hold beside tensors.
    """
    device_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"host_bytes": _peak_resident_bytes(), "device_bytes": device_bytes}


def memory_now(device: torch.device) -> dict[str, int]:
    """The process's resident size, unknown without /proc, and the sum of its GPU's tensors."""
    found = {}
    try:
        resident_pages = int(STATM_FILE.read_text().split()[1])
        found["host_bytes"] = resident_pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        pass
    if device.type == "cuda":
        found["device_bytes"] = torch.cuda.memory_allocated(device)
    return found


def _peak_resident_bytes() -> int:
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS_FILE.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return 1024 * int(found[1])
    # Without /proc. This one is the parent's, if that was larger when it forked.
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
