"""The arithmetic of the dense part: which precision, and where it holds."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from distrain.errors import SpecError


def check_precision(precision: str, device: torch.device) -> None:
    """Raise if the device cannot compute so.

    TF32 is a mode of NVIDIA's matrix units. It is refused elsewhere, rather than taken as fp32:
    who asked for it would compare a run with others that it is not like.

    Raises:
        SpecError: `tf32` without a GPU, or `bf16` on a GPU without it.
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

    The switch is the process's, also for autograd's threads, so it is put back on the way out:
    what else runs in the process keeps its own arithmetic.
    """
    if precision != "tf32" or device.type != "cuda":
        yield
        return
    matmul = torch.backends.cuda.matmul
    # torch before 2.9 has a plain switch; later ones refuse a mixture of both.
    name, value = ("fp32_precision", "tf32")
    if not hasattr(matmul, name):
        name, value = ("allow_tf32", True)  # type: ignore[assignment]
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)
