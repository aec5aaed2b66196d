"""Sparse optimizers: a step only reads and writes the touched rows (those of the batch).

| update rule | equals | state |
|---|---|---|
| sgd | `torch.optim.SGD`, exactly: an untouched row has a gradient of zero | none |
| adagrad | `torch.optim.Adagrad`, exactly, for the same reason | one per value |
| rowwise_adagrad | fbgemm's EXACT_ROWWISE_ADAGRAD: a row's mean square | one per row |
| adam | `torch.optim.SparseAdam` | two per value |

Adam is lazy: the moments of a row do not change while no batch touches it. The moments of dense
`torch.optim.Adam` decay at every step and still move the row. So the two differ for rows that are
not in every batch. The bias correction counts all steps, not those that touch the row. Weight decay
is that of `torch.optim.AdamW`, for every row in every step. It is implemented as a factor: a
table's values are its weights times the factor, which decays at every step, and the updates of
touched rows are divided by it (Bottou 2012, "Stochastic Gradient Descent Tricks", section 5.1).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from distrain.errors import InputError
from distrain.jobs.optimizers import optimizer_facts
from distrain.loader.host_memory import empty
from distrain.models.embeddings import kernels
from distrain.models.embeddings.averaging import GAP, Averaging
from distrain.models.embeddings.collection import EmbeddingCollection, TouchedRows, values_dtype
from distrain.models.embeddings.kernels import RowRule

_SMALLEST_FACTOR = 1e-6


class SparseOptimizer:
    """Updates the touched rows of an `EmbeddingCollection`, in the same way on every rank.

    The state is created on the tables' device, so move the tables first. A step first
    multiplies every row by `1 - lr * weight_decay`.

    Args:
        kind: One of `jobs.optimizers`, such as "adagrad".
        eps: Replaces the default of the kind.
        betas: The decay rates of Adam's moments.
        initial_accumulator_value: The initial sums of squares of Adagrad.
        seed: Seed of the stochastic rounding of bfloat16 weights, the same on all ranks.
        averaging: Also keep an average of the weights. Do not combine it with a weight decay.
        weight_decay: 0 for none. `FixedTables` supports no decay.

    Raises:
        InputError: The kind is unknown, or there are host-cached tables and `averaging`.
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
        averaging: Averaging | None = None,
        weight_decay: float = 0.0,
    ):
        if averaging is not None and any(store.cache is not None for store in embeddings.stores):
            raise InputError(
                "host-cached tables have no averages of their weights",
                hint="Choose another placement of the tables, or leave train.ema out.",
            )
        rule = optimizer_facts(kind).update_rule
        self.embeddings = embeddings
        self.kind = kind
        # the update rule with its constants
        self.rule = RowRule(optimizer_facts(kind).rule, rule.eps if eps is None else eps, betas)
        self.seed = seed
        self.averaging = averaging
        self.weight_decay = weight_decay
        self.num_steps = 0  # updates so far
        self.corrects_bias = rule.bias_correction  # in the learning rate
        starts = dict.fromkeys(rule.accumulators, initial_accumulator_value)
        self._state = tuple(
            {
                name: _state_tensor(weight, name in rule.row_state, starts.get(name, 0.0))
                for name in (*rule.state, *rule.row_state, *([GAP] if averaging else []))
            }
            for weight in embeddings.weights
        )
        self._of_rule = len(rule.state) + len(rule.row_state)
        self._cached = tuple(
            [] if store.cache is None else [store.cache.attach(v) for v in state.values()]
            for store, state in zip(embeddings.stores, self._state, strict=True)
        )

    @torch.no_grad()
    def begin_step(self) -> None:
        """Count a step, and if necessary rescale the averages' gaps (see `averaging.py`).

        `apply` and `FixedTables.begin_step` call it.
        """
        self.num_steps += 1
        if self.averaging is not None:
            for kept in self._state:
                self.averaging.begin(kept[GAP], self.num_steps)

    @torch.no_grad()
    def apply(
        self, touched: Sequence[TouchedRows], lr: float, *, scale: float | Tensor = 1.0
    ) -> None:
        """Update the touched rows of each store, as `EmbeddingCollection.exchange` returns them.

        `scale` is a factor of the gradients. `1 / num_ranks` gives the mean over the ranks, like
        `DistributedDataParallel` for dense gradients.
        """
        self.begin_step()
        rate = lr
        if self.corrects_bias:
            beta1, beta2 = self.rule.betas
            # Like in SparseAdam, eps is added before the bias correction, not after it.
            rate *= math.sqrt(1 - beta2**self.num_steps) / (1 - beta1**self.num_steps)
        if self.weight_decay:
            self.embeddings.factor *= max(1 - lr * self.weight_decay, _SMALLEST_FACTOR)
            rate /= self.embeddings.factor
        for number, rows in enumerate(touched):
            if len(rows.keys) == 0:
                continue
            unscaled = isinstance(scale, float) and scale == 1.0
            grads = rows.grads if unscaled else rows.grads * scale
            weight, state = self._on_device(number)
            rounding = self._rounding(number, rows.keys)
            before = weight[rows.keys] if self.averaging else None
            kernels.update(self.rule, weight, state, rows.keys, grads, rate=rate, **rounding)
            if self.averaging is not None and before is not None:
                gaps = self._state[number][GAP]
                fallen = before.to(gaps.dtype) - weight[rows.keys].to(gaps.dtype)
                gaps.index_add_(0, rows.keys, fallen, alpha=self.averaging.growth(self.num_steps))
        if self.embeddings.factor < _SMALLEST_FACTOR:
            self.embeddings.apply_factor()

    def take_averages(self) -> None:
        """Replace the weights by their averages, in new memory; only with `averaging`."""
        assert self.averaging is not None
        for weight, state in zip(self.embeddings.weights, self._state, strict=True):
            weight.data = self.averaging.averages(weight.data, state[GAP], self.num_steps)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Return a context in which the weights are replaced by their averages.

        Changes nothing if the optimizer has no `averaging`. Do not update the tables inside the
        context.
        """
        own = [weight.data for weight in self.embeddings.weights]
        if self.averaging is not None:
            self.take_averages()
        try:
            yield
        finally:
            for weight, values in zip(self.embeddings.weights, own, strict=True):
                weight.data = values

    def rule_state(self, number: int) -> list[Tensor]:
        """Return the live state tensors of the update rule for store `number`, without gaps."""
        return list(self._state[number].values())[: self._of_rule]

    def gaps(self, number: int) -> Tensor | None:
        """Return the live gaps (see `averaging.py`) of store `number`; `None` without averages."""
        return self._state[number].get(GAP)

    def _on_device(self, number: int) -> tuple[Tensor, list[Tensor]]:
        cache = self.embeddings.stores[number].cache
        if cache is None:
            return self.embeddings.weights[number], self.rule_state(number)
        return cache.values(0), [cache.values(place) for place in self._cached[number]]

    def _rounding(self, number: int, keys: Tensor) -> dict[str, Any]:
        """Return the arguments of `kernels.update` for stochastic rounding of store `number`.

        Returns {} if its weights are not bfloat16. All ranks round equally. `keys` are the rows to
        update.
        """
        if self.embeddings.weights[number].dtype != torch.bfloat16:
            return {}
        store = self.embeddings.stores[number]
        return {
            "rounding_seed": rounding_seed(self.seed, self.num_steps, store.dim),
            "global_keys": store.canonical_keys(keys),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the live state: `num_steps`, and `NUMBER.NAME` for the state of store `NUMBER`."""
        self.embeddings.flush_caches()
        state = {"num_steps": torch.tensor(self.num_steps)}
        for number, own in enumerate(self._state):
            state |= {f"{number}.{name}": values for name, values in own.items()}
        return state


def rounding_seed(seed: int, num_steps: int, dim: int) -> int:
    """Return the 64-bit seed for rounding weights of width `dim` in step `num_steps`."""
    return ((seed * 1_000_003 + num_steps) * 1_000_003 + dim) % 2**64


def _state_tensor(weight: Tensor, per_row: bool, start: float) -> Tensor:
    shape = weight.shape[:1] if per_row else weight.shape
    if weight.device.type == "cpu":
        return empty(shape, values_dtype(weight)).fill_(start)
    return torch.full(shape, start, dtype=values_dtype(weight), device=weight.device)
