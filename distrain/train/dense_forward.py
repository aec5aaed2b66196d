"""The dense module as a step calls it: its precision, and compiled where that was asked for."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.train.precision import check_precision

# A compilation takes half a minute or so, so it is for numbers of rows that come again and again.
# A rank's batches differ by a few rows where the lanes do not divide the global batch.
_MOST_COMPILED = 4
_CALLS_WATCHED = 32


class DenseForward(nn.Module):
    """`module(embedded, continuous)` in a precision, giving logits that a loss can take.

    With `bf16` the module runs under autocast: parameters and what comes in stay fp32, matrix
    products are bf16, and the logits come out in fp32.

    With `compiled`, torch compiles the module for each number of rows that is seen a second time
    among the first calls, and for four of them at most; batches of other sizes, such as an epoch's
    last one, run as if nothing were compiled.

    Args:
        module: The dense part, on its device.
        precision: "fp32", "tf32" or "bf16"; see `check_precision`.
        compiled: Whether to compile it.

    Raises:
        SpecError: The device has no such precision.
    """

    def __init__(self, module: nn.Module, precision: str = "fp32", compiled: bool = False):
        super().__init__()
        self.module = module
        self.compiled = compiled
        first = next(module.parameters())
        check_precision(precision, first.device)
        self._device_type = first.device.type
        self._autocast = precision == "bf16"
        self._fast = torch.compile(module, dynamic=False) if compiled else module
        self._seen: Counter[int] = Counter()
        self._sizes: set[int] = set()

    def forward(self, embedded: tuple[Tensor, ...], continuous: Tensor) -> Tensor:
        """The logits, `[rows]`."""
        chosen = self._fast if self._is_steady(len(continuous)) else self.module
        with torch.autocast(self._device_type, torch.bfloat16, enabled=self._autocast):
            logits: Tensor = chosen(embedded, continuous)
        return logits.float() if logits.dtype == torch.bfloat16 else logits

    def _is_steady(self, num_rows: int) -> bool:
        if self.compiled and self._seen.total() < _CALLS_WATCHED:
            self._seen[num_rows] += 1
            room = len(self._sizes) < _MOST_COMPILED
            # torch compiles for 0 and 1 in ways of their own, and they are quick anyway.
            if room and self._seen[num_rows] > 1 and num_rows > 1:
                self._sizes.add(num_rows)
        return num_rows in self._sizes


@contextmanager
def compiler_errors(compiled: bool) -> Iterator[None]:
    """Tell what stops torch's compiler in words.

    Raises:
        ModelError: The compiler failed inside.
    """
    if not compiled:
        yield
        return
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import CppCompileError

    try:
        yield
    except (TorchDynamoException, CppCompileError) as error:
        # The first line names torch's part, the second one what it met.
        reason = " ".join(str(error).strip().splitlines()[:2])
        raise ModelError(
            f"torch could not compile the dense part: {type(error).__name__}: {reason}",
            where={"train.compile": True},
            hint="Set train.compile to false; on a CPU, compiling needs g++.",
        ) from error
