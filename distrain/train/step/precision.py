"""torch's switches for a step: TF32, if its precision has it, and deterministic algorithms."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from distrain.errors import SpecError


def check_precision(precision: str, device: torch.device) -> None:
    """Raise `SpecError` if the device lacks the precision.

    TF32 is a mode of NVIDIA's matrix units. Elsewhere it is refused rather than taken as fp32: a
    run would be compared with others that it is not like.
    """
    if precision == "tf32" and device.type != "cuda":
        raise SpecError(
            f"train.precision is tf32, but this rank trains on {device.type}: "
            "only NVIDIA's GPUs have it",
            where={"train.precision": precision, "device": str(device)},
            hint="Set train.precision to fp32, or to bf16.",
        )
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise SpecError(
            "train.precision is bf16, which this GPU does not have",
            where={"train.precision": precision, "device": torch.cuda.get_device_name(device)},
            hint="Set train.precision to fp32.",
        )


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Inside, float32 matrix products may run in TF32 if `precision` is `tf32`.

    The switch is the process's, also for autograd's threads, so it is put back on the way out: what
    else runs in the process keeps its own arithmetic.
    """
    if precision != "tf32" or device.type != "cuda":
        yield
        return
    matmul = torch.backends.cuda.matmul
    name, value, before = _tf32_switch()
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)


def _tf32_switch() -> tuple[str, object, object]:
    """Return the attribute of `torch.backends.cuda.matmul` to set, its value for TF32, and today's.

    torch 2.9 brought `fp32_precision` beside `allow_tf32`. Setting the old one sets both, so both
    can be read then, and torch's compiler reads both. After the new one was set, reading the old
    one is an error: who has done so must go on with the new one.
    """
    matmul = torch.backends.cuda.matmul
    try:
        return "allow_tf32", True, matmul.allow_tf32
    except (RuntimeError, AttributeError):
        return "fp32_precision", "tf32", matmul.fp32_precision


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Inside, torch takes deterministic algorithms on a GPU, and warns where it has none.

    The switch is the process's, also for autograd's threads, and is put back on the way out. It
    does not hold for tables, routes and metrics: these add up sorted segments or whole numbers,
    which is the same in any order of threads, and the switch would have torch sort every index that
    they write to, and write equal ones one after another.

    Attention is the one of plain products: the gradients of torch's fused ones differ from run to
    run unless the switch refuses, instead of warning of, what is not deterministic.
    """
    if device.type != "cuda":
        yield
        return
    filling = torch.utils.deterministic
    was_on = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = filling.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would also fill every new tensor first; ours are written whole before they are read.
    filling.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
        filling.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
