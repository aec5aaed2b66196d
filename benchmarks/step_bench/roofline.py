"""Computes the minimum cost of a step: bytes moved and floating-point operations, counted by hand.

The rules, for one rank and one step of `rows` rows that touch `distinct` rows of the tables:

- A matrix product reads its inputs and writes its output once. Pointwise operations (bias, ReLU,
  loss, optimizer) are fused into the adjacent products and move no bytes themselves. So a layer's
  output is written once, and read by the next layer and again for that layer's weight gradient; its
  gradient is written once and read twice, for the weight's gradient and the input's.
- Embeddings are expanded once to `[rows, columns, dim]`, which the dense layers read like any
  layer's output; the gradient is read once more, to sum it by row.
- Each distinct row is read once for the lookup. For the update, the row and the optimizer's state
  are read and written once. Sums of gradients by row are written and read once.
- Ids are read once. Dense weights stay in caches. Communication between ranks is not counted.

A product of `[n, a]` and `[a, b]` has `2 n a b` operations; pointwise ones are not counted. The
minimum time is the larger of bytes over the copy rate, and operations over the rate of large
products.
"""

from dataclasses import dataclass
from itertools import pairwise

from benchmarks.step_bench.contender import Setup
from benchmarks.step_bench.dense import (
    BOTTOM,
    CROSSES,
    DEEP,
    HIDDEN,
    NUM_COLUMNS,
    NUM_CONTINUOUS,
    TOP,
)

ID_BYTES = 4
INPUT_BYTES = 4
TABLE_BYTES = 4
DENSE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
TOUCHES_OF_OUTPUT = 3  # written; read by the next layer; read for that layer's weight gradient
TOUCHES_OF_GRADIENT = 3  # written; read for the weight's; read for the input's


@dataclass(frozen=True)
class Cost:
    """The minimum that a step moves and computes, on each rank.

    Attributes:
        bytes: Bytes read and written.
        flops: Operations of matrix products.
    """

    bytes: float
    flops: float

    def floor_s(self, bytes_per_s: float, flops_per_s: float) -> float:
        """Return the minimum time at these rates."""
        return max(self.bytes / bytes_per_s, self.flops / flops_per_s)


def step_cost(setup: Setup, rows: int, distinct: float) -> Cost:
    """Return the cost of a step.

    Args:
        setup: Its model and optimizer.
        rows: Rows of this rank's batch.
        distinct: Number of table rows that they touch.
    """
    moved = rows * NUM_COLUMNS * ID_BYTES + table_bytes(setup, distinct)
    leaf = NUM_COLUMNS * setup.dim * DENSE_BYTES[setup.precision]
    if setup.model == "path":
        return Cost(moved + rows * 2 * leaf, 0.0)
    inputs = (NUM_CONTINUOUS + 1) * INPUT_BYTES  # and the label
    dense = activation_bytes(setup)
    # The dense layers write the leaf's gradient; adding it up by row reads it.
    per_row = TOUCHES_OF_OUTPUT * leaf + 2 * leaf + inputs + dense
    return Cost(moved + rows * per_row, rows * dense_flops(setup))


def table_bytes(setup: Setup, distinct: float) -> float:
    """Return the bytes of the touched rows: lookup, sums of gradients, update of row and state."""
    row = setup.dim * TABLE_BYTES
    memory = {"sgd": 0, "adagrad": row, "rowwise_adagrad": TABLE_BYTES, "adam": 2 * row}
    return distinct * (row + 2 * row + 2 * row + 2 * memory[setup.kind])


def layers(setup: Setup) -> list[tuple[int, int, bool]]:
    """Return each linear layer's widths, and whether its input needs a gradient by a product.

    Continuous values need none: a first layer's columns over them are a separate entry.
    """
    embedded = NUM_COLUMNS * setup.dim
    if setup.model == "mlp":
        return [
            (embedded, HIDDEN[0], True),
            (NUM_CONTINUOUS, HIDDEN[0], False),
            *((a, b, True) for a, b in pairwise((*HIDDEN, 1))),
        ]
    if setup.model == "dcn_v2":
        # The first cross layer takes all inputs as one block, whose gradient is one product.
        width = embedded + NUM_CONTINUOUS
        widths = (width,) * (CROSSES + 1) + (*DEEP, 1)
        return [(a, b, True) for a, b in pairwise(widths)]
    bottom: tuple[int, ...] = (NUM_CONTINUOUS, *BOTTOM)
    if BOTTOM[-1] != setup.dim:
        bottom = (*bottom, setup.dim)
    top = (setup.dim + num_pairs(), *TOP, 1)
    return [
        *((a, b, a != NUM_CONTINUOUS) for a, b in pairwise(bottom)),
        *((a, b, True) for a, b in pairwise(top)),
    ]


def dense_flops(setup: Setup) -> float:
    """Return the operations of one row, forward and backward."""
    linear = sum(2 * a * b * (3 if gradient else 2) for a, b, gradient in layers(setup))
    return linear + 2 * interaction_flops(setup)


def interaction_flops(setup: Setup) -> float:
    """Return the operations of one row's products of all pairs, forward only."""
    return 2 * (NUM_COLUMNS + 1) ** 2 * setup.dim if setup.model == "dlrm" else 0


def activation_bytes(setup: Setup) -> float:
    """Return the bytes of one row between the dense layers, without the embeddings."""
    value = DENSE_BYTES[setup.precision]
    touches = TOUCHES_OF_OUTPUT + TOUCHES_OF_GRADIENT
    if setup.model == "mlp":
        return touches * value * sum(HIDDEN)
    if setup.model == "dcn_v2":
        width = NUM_COLUMNS * setup.dim + NUM_CONTINUOUS
        return touches * value * (CROSSES * width + sum(DEEP))
    bottom = sum(BOTTOM) + (setup.dim if BOTTOM[-1] != setup.dim else 0)
    return touches * value * (bottom + num_pairs() + sum(TOP))


def num_pairs() -> int:
    """Return the number of pairs among 26 embeddings and the bottom MLP's vector."""
    return (NUM_COLUMNS + 1) * NUM_COLUMNS // 2
