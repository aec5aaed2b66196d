"""Measures how fast the machine copies memory and multiplies matrices, with one thread."""

from typing import Any

from benchmarks.step_bench.contender import Contender, Setup
from benchmarks.step_bench.data import Rows
from benchmarks.step_bench.laps import Laps

COPY_BYTES = 128 * 2**20
MATRIX_ROWS = {"cpu": 1536, "cuda": 8192}
COPIES, PRODUCTS = 4, 4
PRECISIONS = ("fp32", "tf32", "bf16")


class Machine:
    """A contender whose step copies large blocks and multiplies large matrices, as separate phases.

    On a GPU it multiplies in each precision; their rates differ by an order of magnitude.
    """

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        import torch

        self.device = torch.device(setup.device)
        self.blocks = [torch.ones(COPY_BYTES // 4, device=self.device) for _ in range(2)]
        self.precisions = PRECISIONS if setup.cuda else (setup.precision,)
        n = MATRIX_ROWS[setup.device]
        self.factors = {}
        for precision in self.precisions:
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            factors = [torch.randn(n, n, device=self.device).to(dtype) for _ in range(2)]
            self.factors[precision] = (*factors, torch.empty_like(factors[0]))

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        return 1

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        import torch

        from distrain.train.step.precision import arithmetic

        with laps.phase("copy"):
            for _ in range(COPIES):
                self.blocks[1].copy_(self.blocks[0])
        for precision, (left, right, product) in self.factors.items():
            with arithmetic(precision, self.device), laps.phase(f"matrix_{precision}"):
                for _ in range(PRODUCTS):
                    torch.mm(left, right, out=product)


def rates(phases_s: dict[str, float], setup: Setup) -> tuple[float, float]:
    """Return bytes read and written per second, and FLOP/s in a contender's precision.

    Args:
        phases_s: Seconds by phase of `Machine`'s step.
        setup: The contender's set-up.
    """
    copied = 2 * COPIES * COPY_BYTES / phases_s["copy"]
    flops = 2 * PRODUCTS * MATRIX_ROWS[setup.device] ** 3
    return copied, flops / phases_s[f"matrix_{setup.precision}"]


def machine(setup: Setup, rows: Rows, rank: int) -> Any:
    """Open the contender."""
    contender: Contender = Machine(setup, rows, rank)
    return contender
