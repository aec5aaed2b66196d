"""What the machine can do: how fast it copies memory and multiplies matrices, one thread."""

from typing import Any

from step_bench.contender import Contender, Setup
from step_bench.data import Rows
from step_bench.laps import Laps

COPY_BYTES = 128 * 2**20
MATRIX_ROWS = {"cpu": 1536, "cuda": 8192}
COPIES, PRODUCTS = 4, 4


class Machine:
    """A step copies large blocks and multiplies large matrices; phases tell them apart."""

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        import torch

        self.dtype = torch.bfloat16 if setup.precision == "bf16" else torch.float32
        device = setup.device
        self.blocks = [torch.ones(COPY_BYTES // 4, device=device) for _ in range(2)]
        n = MATRIX_ROWS[device]
        self.factors = [torch.randn(n, n, device=device).to(self.dtype) for _ in range(2)]
        self.product = torch.empty_like(self.factors[0])
        if setup.precision == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        return 1

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        import torch

        with laps.phase("copy"):
            for _ in range(COPIES):
                self.blocks[1].copy_(self.blocks[0])
        with laps.phase("matrix"):
            for _ in range(PRODUCTS):
                torch.mm(*self.factors, out=self.product)


def rates(phases_s: dict[str, float], setup: Setup) -> tuple[float, float]:
    """Bytes read and written per second, and FLOP/s, from the phases of `Machine`'s step."""
    copied = 2 * COPIES * COPY_BYTES / phases_s["copy"]
    return copied, 2 * PRODUCTS * MATRIX_ROWS[setup.device] ** 3 / phases_s["matrix"]


def machine(setup: Setup, rows: Rows, rank: int) -> Any:
    """Open the contender."""
    contender: Contender = Machine(setup, rows, rank)
    return contender
