"""Sets torch up for a step: TF32, if the precision is `tf32`, and deterministic algorithms."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from distrain.errors import SpecError


def check_precision(precision: str, device: torch.device) -> None:
    """Raise `SpecError` if the device lacks the precision.

    TF32 is a mode of NVIDIA's matrix units. On other devices it is rejected, rather than replaced
    by fp32, because the results of such runs could not be compared.
    """
    if precision == "tf32" and device.type != "cuda":
        raise SpecError(
            f"train.precision is tf32, but this rank trains on {device.type}: only NVIDIA GPUs "
            "support it",
            where={"train.precision": precision, "device": str(device)},
            hint="Set train.precision to fp32, or to bf16.",
        )
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise SpecError(
            "train.precision is bf16, which this GPU does not support",
            where={"train.precision": precision, "device": torch.cuda.get_device_name(device)},
            hint="Set train.precision to fp32.",
        )


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Return a context in which float32 matrix products run in TF32 if `precision` is `tf32`.

    The setting applies to the whole process, also to autograd's threads. It is restored at the end,
    so that other code in the process is not affected.
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
    """Return the attribute of `torch.backends.cuda.matmul` to set, its TF32 and current values.

    torch 2.9 added `fp32_precision` beside `allow_tf32`. Setting `allow_tf32` sets both, and
    torch's compiler reads both. Once `fp32_precision` has been set, reading `allow_tf32` is an
    error, so `fp32_precision` must be used.
    """
    matmul = torch.backends.cuda.matmul
    try:
        return "allow_tf32", True, matmul.allow_tf32
    except (RuntimeError, AttributeError):
        return "fp32_precision", "tf32", matmul.fp32_precision


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Return a context in which torch uses deterministic algorithms on a GPU.

    torch warns of operations that have no deterministic algorithm.

    The setting applies to the whole process, also to autograd's threads, and is restored at the
    end. It does not apply to tables, routes and metrics: these add up sorted segments or integers,
    which gives the same result in any order of threads. With the setting, torch would sort every
    index that they write to, and write equal ones one after another.

    Attention uses plain products: the gradients of torch's fused kernels differ from run to run
    unless torch rejects, instead of warning of, operations that are not deterministic.
    """
    if device.type != "cuda":
        yield
        return
    filling = torch.utils.deterministic
    was_on = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = filling.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    # torch would also fill every new tensor first; here tensors are written before they are read.
    filling.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
        filling.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
