"""Sparse optimizers: a step reads and writes the touched rows, nothing else.

| kind | equals | state |
|---|---|---|
| sgd | `torch.optim.SGD`, exactly: an untouched row has a gradient of zero | none |
| adagrad | `torch.optim.Adagrad`, exactly, for the same reason | one per value |
| rowwise_adagrad | fbgemm's EXACT_ROWWISE_ADAGRAD: a row's mean square | one per row |
| adam | `torch.optim.SparseAdam` | two per value |

Adam is the lazy one: a row's moments stand still while no batch touches it, whereas those of dense
`torch.optim.Adam` decay at every step and go on moving the row. The two differ for rows that are
not in every batch; the bias correction counts steps, not touches.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from distrain.embeddings import kernels
from distrain.embeddings.collection import EmbeddingCollection, TouchedRows, values_dtype
from distrain.embeddings.host_memory import empty
from distrain.errors import InputError

# The names of what each kind remembers, and whether once per value or once per row.
_MEMORY = {
    "sgd": (),
    "adagrad": ("sum",),
    "rowwise_adagrad": ("row_sum",),
    "adam": ("exp_avg", "exp_avg_sq"),
}
# torch's own defaults; fbgemm's for the row-wise kind.
_DEFAULT_EPS = {"sgd": 0.0, "adagrad": 1e-10, "rowwise_adagrad": 1e-8, "adam": 1e-8}


class SparseOptimizer:
    """Updates the touched rows of an `EmbeddingCollection`, alike on every rank.

    Args:
        embeddings: The tables. Move them to their device first: the state is made beside them.
        kind: "sgd", "adagrad" (element-wise), "rowwise_adagrad" or "adam" (lazy).
        eps: Added to the denominator; `None` for torch's default of that kind.
        betas: Adam's decay rates.
        initial_accumulator_value: Where Adagrad's sums start.
        seed: Of the stochastic rounding of bfloat16 weights; the same on all ranks.
    """

    def __init__(
        self,
        embeddings: EmbeddingCollection,
        kind: str,
        *,
        eps: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        initial_accumulator_value: float = 0.0,
        seed: int = 0,
    ):
        if kind not in _MEMORY:
            raise InputError(
                f"unknown optimizer {kind!r}", hint=f"Allowed: {', '.join(sorted(_MEMORY))}."
            )
        self.embeddings = embeddings
        self.kind = kind
        self.eps = _DEFAULT_EPS[kind] if eps is None else eps
        self.betas = betas
        self.seed = seed
        self.num_steps = 0
        start = {"sum": initial_accumulator_value, "row_sum": initial_accumulator_value}
        self._memory = tuple(
            {name: _memory_of(weight, name, start.get(name, 0.0)) for name in _MEMORY[kind]}
            for weight in embeddings.weights
        )
        self._cached = tuple(
            {} if store.cache is None else {n: store.cache.attach(v) for n, v in memory.items()}
            for store, memory in zip(embeddings.stores, self._memory, strict=True)
        )

    @torch.no_grad()
    def apply(
        self, touched: Sequence[TouchedRows], lr: float, *, scale: float | Tensor = 1.0
    ) -> None:
        """Update the touched rows.

        Args:
            touched: From `EmbeddingCollection.exchange`: for each store.
            lr: The learning rate.
            scale: Factor on the gradients. `1 / num_ranks` gives the mean that
                `DistributedDataParallel` takes of dense gradients.
        """
        self.num_steps += 1
        for number, rows in enumerate(touched):
            if len(rows.keys) == 0:
                continue
            unscaled = isinstance(scale, float) and scale == 1.0
            grads = rows.grads if unscaled else rows.grads * scale
            self._update(number, rows.keys, grads, lr)

    def _update(self, number: int, keys: Tensor, grads: Tensor, lr: float) -> None:
        weight, memory = self._on_device(number)
        rounding = self._rounding(number, keys)
        match self.kind:
            case "sgd":
                kernels.update_sgd(weight, keys, grads, lr=lr, **rounding)
            case "adagrad":
                kernels.update_adagrad(
                    weight, memory["sum"], keys, grads, lr=lr, eps=self.eps, **rounding
                )
            case "rowwise_adagrad":
                kernels.update_rowwise_adagrad(
                    weight, memory["row_sum"], keys, grads, lr=lr, eps=self.eps, **rounding
                )
            case "adam":
                beta1, beta2 = self.betas
                # As in SparseAdam, eps is added before the bias correction, not after it.
                correction = math.sqrt(1 - beta2**self.num_steps) / (1 - beta1**self.num_steps)
                kernels.update_adam(
                    weight,
                    memory["exp_avg"],
                    memory["exp_avg_sq"],
                    keys,
                    grads,
                    step_size=lr * correction,
                    betas=self.betas,
                    eps=self.eps,
                    **rounding,
                )

    def _on_device(self, number: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Where a store's rows are updated: all of them, or those in its cache."""
        cache = self.embeddings.stores[number].cache
        if cache is None:
            return self.embeddings.weights[number], self._memory[number]
        own = {name: cache.values(place) for name, place in self._cached[number].items()}
        return cache.values(0), own

    def _rounding(self, number: int, keys: Tensor) -> dict[str, Any]:
        """How bfloat16 weights are rounded: alike wherever a row lives, otherwise in every step."""
        if self.embeddings.weights[number].dtype != torch.bfloat16:
            return {}
        store = self.embeddings.stores[number]
        return {
            "rounding_seed": rounding_seed(self.seed, self.num_steps, store.dim),
            "global_keys": store.canonical_keys(keys),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """The state as named tensors: `num_steps`, and `STORE.NAME` for each store's memory.

        The tensors are the live ones, not copies.
        """
        self.embeddings.settle()
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


def rounding_seed(seed: int, num_steps: int, dim: int) -> int:
    """The 64 bits from which the weights of a width are rounded in a step; linear in each."""
    return ((seed * 1_000_003 + num_steps) * 1_000_003 + dim) % 2**64


def _memory_of(weight: Tensor, name: str, start: float) -> Tensor:
    shape = weight.shape[:1] if name == "row_sum" else weight.shape
    if weight.device.type == "cpu":
        return empty(shape, values_dtype(weight)).fill_(start)
    return torch.full(shape, start, dtype=values_dtype(weight), device=weight.device)
