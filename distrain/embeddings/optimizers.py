"""Sparse optimizers: a step reads and writes the touched rows, nothing else.

| kind | equals | state per value |
|---|---|---|
| sgd | `torch.optim.SGD`, exactly: an untouched row has a gradient of zero | none |
| adagrad | `torch.optim.Adagrad`, exactly, for the same reason | one |
| adam | `torch.optim.SparseAdam` | two |

Adam is the lazy one: a row's moments stand still while no batch touches it, whereas those of dense
`torch.optim.Adam` decay at every step and go on moving the row. The two differ for rows that are
not in every batch; the bias correction counts steps, not touches.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from distrain.embeddings.collection import EmbeddingCollection
from distrain.embeddings.exchange import exchange_rows
from distrain.embeddings.merge import merge_rows
from distrain.errors import InputError

# The names of what each kind remembers per weight value.
_MEMORY = {"sgd": (), "adagrad": ("sum",), "adam": ("exp_avg", "exp_avg_sq")}
# torch's own defaults.
_DEFAULT_EPS = {"sgd": 0.0, "adagrad": 1e-10, "adam": 1e-8}


class TouchedRows(NamedTuple):
    """The rows of one weight that a step touched, over all ranks.

    Attributes:
        keys: `[u]`, int64, distinct, rising.
        grads: `[u, dim]`, the sum of their gradients.
    """

    keys: Tensor
    grads: Tensor


class SparseOptimizer:
    """Updates the touched rows of an `EmbeddingCollection`, alike on every rank.

    Args:
        embeddings: The tables. Move them to their device first: the state is made beside them.
        kind: "sgd", "adagrad" (element-wise) or "adam" (lazy).
        eps: Added to the denominator; `None` for torch's default of that kind.
        betas: Adam's decay rates.
        initial_accumulator_value: Where Adagrad's sums start.
        group: The ranks that train together; `None` for the default process group.
    """

    def __init__(
        self,
        embeddings: EmbeddingCollection,
        kind: str,
        *,
        eps: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        initial_accumulator_value: float = 0.0,
        group: dist.ProcessGroup | None = None,
    ):
        if kind not in _MEMORY:
            raise InputError(
                f"unknown optimizer {kind!r}", hint=f"Allowed: {', '.join(sorted(_MEMORY))}."
            )
        self.embeddings = embeddings
        self.kind = kind
        self.eps = _DEFAULT_EPS[kind] if eps is None else eps
        self.betas = betas
        self.group = group
        self.num_steps = 0
        self._memory = tuple(
            {
                name: torch.full_like(weight, initial_accumulator_value if name == "sum" else 0.0)
                for name in _MEMORY[kind]
            }
            for weight in embeddings.weights
        )

    def step(
        self,
        keys: tuple[Tensor, ...],
        grads: tuple[Tensor, ...],
        lr: float,
        exchange_scale: float = 1.0,
    ) -> None:
        """`exchange` and `apply` in one call, for callers that do not time them apart."""
        self.apply(self.exchange(keys, grads), lr, scale=exchange_scale)

    @torch.no_grad()
    def exchange(
        self, keys: tuple[Tensor, ...], grads: tuple[Tensor, ...]
    ) -> tuple[TouchedRows, ...]:
        """Merge one batch's gradients row by row, and add those of the other ranks.

        A collective operation: every rank calls it in every step, also with a batch of no rows.

        Args:
            keys: From `EmbeddingCollection.keys`: for each group `[rows, columns]`.
            grads: The gradients of what `lookup` returned: for each group `[rows, columns, dim]`.
        """
        touched = []
        for own_keys, own_grads in zip(keys, grads, strict=True):
            merged = merge_rows(own_keys.reshape(-1), own_grads.reshape(-1, own_grads.shape[-1]))
            touched.append(TouchedRows(*exchange_rows(*merged, self.group)))
        return tuple(touched)

    @torch.no_grad()
    def apply(self, touched: tuple[TouchedRows, ...], lr: float, *, scale: float = 1.0) -> None:
        """Update the touched rows.

        Args:
            touched: From `exchange`: for each group.
            lr: The learning rate.
            scale: Factor on the gradients. `1 / num_ranks` gives the mean that
                `DistributedDataParallel` takes of dense gradients.
        """
        self.num_steps += 1
        update = _UPDATES[self.kind]
        for weight, memory, rows in zip(
            self.embeddings.weights, self._memory, touched, strict=True
        ):
            if len(rows.keys) == 0:
                continue
            grads = rows.grads if scale == 1.0 else rows.grads * scale
            update(self, weight, memory, rows.keys, grads, lr)

    def state_dict(self) -> dict[str, Tensor]:
        """The state as named tensors: `num_steps`, and `GROUP.NAME` for each group's memory.

        The tensors are the live ones, not copies.
        """
        state = {"num_steps": torch.tensor(self.num_steps)}
        for number, memory in enumerate(self._memory):
            state |= {f"{number}.{name}": values for name, values in memory.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state of the same kind for tables of the same shapes.

        Raises:
            InputError: It holds other names or other shapes; nothing was changed.
        """
        own = self.state_dict()
        if set(own) != set(state):
            raise InputError(
                f"the saved state is not that of {self.kind!r}: it holds {sorted(state)}, "
                f"not {sorted(own)}"
            )
        for name, values in own.items():
            if values.shape != state[name].shape:
                raise InputError(
                    f"saved optimizer state has shape {list(state[name].shape)}, "
                    f"the tables need {list(values.shape)}",
                    where={"state": name},
                )
        for name, values in own.items():
            values.copy_(state[name])
        self.num_steps = int(state["num_steps"])


def _sgd(
    _: SparseOptimizer,
    weight: Tensor,
    memory: dict[str, Tensor],
    rows: Tensor,
    grad: Tensor,
    lr: float,
) -> None:
    weight.index_copy_(0, rows, weight.index_select(0, rows).add_(grad, alpha=-lr))


def _adagrad(
    optimizer: SparseOptimizer,
    weight: Tensor,
    memory: dict[str, Tensor],
    rows: Tensor,
    grad: Tensor,
    lr: float,
) -> None:
    total = memory["sum"].index_select(0, rows).addcmul_(grad, grad)
    memory["sum"].index_copy_(0, rows, total)
    denominator = total.sqrt_().add_(optimizer.eps)
    new = weight.index_select(0, rows).addcdiv_(grad, denominator, value=-lr)
    weight.index_copy_(0, rows, new)


def _adam(
    optimizer: SparseOptimizer,
    weight: Tensor,
    memory: dict[str, Tensor],
    rows: Tensor,
    grad: Tensor,
    lr: float,
) -> None:
    beta1, beta2 = optimizer.betas
    mean = memory["exp_avg"].index_select(0, rows).lerp_(grad, 1 - beta1)
    memory["exp_avg"].index_copy_(0, rows, mean)
    square = memory["exp_avg_sq"].index_select(0, rows).mul_(beta2)
    square.addcmul_(grad, grad, value=1 - beta2)
    memory["exp_avg_sq"].index_copy_(0, rows, square)
    # As in SparseAdam, eps is added before the bias correction, not after it as in Adam.
    steps = optimizer.num_steps
    step_size = lr * math.sqrt(1 - beta2**steps) / (1 - beta1**steps)
    denominator = square.sqrt_().add_(optimizer.eps)
    new = weight.index_select(0, rows).addcdiv_(mean, denominator, value=-step_size)
    weight.index_copy_(0, rows, new)


_Update = Callable[[SparseOptimizer, Tensor, dict[str, Tensor], Tensor, Tensor, float], None]
_UPDATES: dict[str, _Update] = {"sgd": _sgd, "adagrad": _adagrad, "adam": _adam}
