"""Precisions of a training step: which of them a device has, and the switch of TF32."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
    """The attribute of `torch.backends.cuda.matmul` to set, its value for TF32, and today's.

    torch 2.9 brought `fp32_precision` beside `allow_tf32`. Setting the old one sets both, so both
    can be read then, and torch's compiler reads both. After the new one was set, reading the old
    one is an error: who has done so must go on with the new one.
    """
    matmul = torch.backends.cuda.matmul
    try:
        return "allow_tf32", True, matmul.allow_tf32
    except (RuntimeError, AttributeError):
        return "fp32_precision", "tf32", matmul.fp32_precision
