"""Whether Triton's kernels run, or their twins in torch."""

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

_SWITCH = "DISTRAIN_TRITON"


def runs_triton(tensor: Tensor) -> bool:
    """Whether Triton's kernels shall work on such a tensor.

    They do where the environment variable `DISTRAIN_TRITON` is 1, on NVIDIA's GPUs with the package
    installed, for values of at most 32 bits, outside of `torch.compile`. They are off by default,
    because no measurement shows yet that they pay. On a CPU they run in Triton's interpreter, for
    tests, if `TRITON_INTERPRET=1` asks for it too.
    """
    if tensor.dtype == torch.float64 or torch.compiler.is_compiling():
        return False
    if tensor.device.type == "cpu":
        return os.environ.get("TRITON_INTERPRET") == "1" and _is_switched_on()
    is_nvidia = tensor.device.type == "cuda" and torch.version.hip is None
    return is_nvidia and _is_switched_on()


def _is_switched_on() -> bool:
    return os.environ.get(_SWITCH) == "1" and _is_installed()


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None
