"""The named tensors that a checkpoint needs to continue a training.

The names do not depend on the placement of tables or the number of ranks. A torch optimizer may
hold a module's parameters one by one, or as views of one vector. Its state is named by parameter in
both cases, so a state saved in one case can be loaded in the other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from distrain.errors import DataError
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.canonical_state import (
    CanonicalTensor,
    canonical_state,
    canonical_weights,
)
from distrain.models.embeddings.columns import TableColumn
from distrain.models.embeddings.sparse_optimizer import SparseOptimizer
from distrain.models.tensor_file import dtype_name
from distrain.train.checkpoint.manifest import TensorFacts


@dataclass(frozen=True)
class TrainingState:
    """A model and its optimizers, as named tensors for any placement and number of ranks."""

    model: ClickModel
    sparse_optimizer: SparseOptimizer
    dense_optimizer: Optimizer  # torch's, of the dense layers

    @property
    def device(self) -> torch.device:
        """The device of the dense layers, or of the tables if the dense layers have no parameters.

        Tensors that ranks exchange must be on this device.
        """
        dense = next(iter(self.model.dense.parameters()), None)
        return (self.model.embeddings.weights[0] if dense is None else dense).device

    def tensors(self) -> dict[str, Tensor | CanonicalTensor]:
        """Return the live tensors by name; writing to them changes the state.

        They are valid until the next step. The names are `dense.PARAMETER`,
        `dense_optimizer.PARAMETER.KEY`, `embeddings.weights.GROUP` and
        `sparse_optimizer.GROUP.KEY`. Names, shapes and types are the same on every rank.
        """
        tables = canonical_weights(self.model.embeddings)
        memory = canonical_state(self.sparse_optimizer)
        return {
            **dense_tensors(self.model.dense, self.dense_optimizer),
            **{f"embeddings.{name}": tensor for name, tensor in tables.items()},
            **{f"sparse_optimizer.{name}": tensor for name, tensor in memory.items()},
        }

    def facts(self) -> dict[str, Any]:
        """Return the state's values that are not tensors, such as the number of steps.

        They are JSON values for `Manifest.state`.
        """
        averaging = self.sparse_optimizer.averaging
        return {
            "columns": self._columns(),
            "sparse_steps": self.sparse_optimizer.num_steps,
            # Stored separately: the products of weights and factor would be rounded, and a resumed
            # training would differ in the last bits.
            "table_factor": self.model.embeddings.factor,
            "ema": None if averaging is None else averaging.decay,
        }

    def adopt(self, facts: Mapping[str, Any]) -> None:
        """Set the values that are not tensors to the saved `facts`, after tensors were loaded."""
        self.sparse_optimizer.num_steps = facts["sparse_steps"]
        self.model.embeddings.factor = table_factor(facts)
        if not self.sparse_optimizer.weight_decay:  # its updates do not use a factor
            self.model.embeddings.apply_factor()

    def check_fits(
        self, facts: Mapping[str, Any], tensors: Mapping[str, TensorFacts], url: str
    ) -> None:
        """Raise `DataError` if saved tensors do not fit this model and these optimizers."""
        if not isinstance(facts.get("sparse_steps"), int):
            raise DataError(
                "the checkpoint does not record the number of steps of its tables",
                where={"path": url},
            )
        if facts.get("columns") != self._columns():
            raise DataError(
                "the checkpoint's tables differ from the model's",
                where={"path": url, "saved": facts.get("columns"), "model": self._columns()},
                hint="Columns, their cardinalities, widths, combiners and tables must be the same.",
            )
        problems = differences(tensors, facts_of(self.tensors()), "this training needs")
        if problems:
            raise DataError(
                "the saved tensors do not fit:\n  " + "\n  ".join(problems),
                where={"path": url},
                hint="The model, its tables and the kinds of optimizers must be those that were "
                "saved.",
            )

    def _columns(self) -> list[list[str | int | None]]:
        return [
            # The table is named only if its name is not the column's.
            [column.name, column.cardinality, column.dim, column.combiner, *_table(column)]
            for column in self.model.embeddings.columns
        ]


def table_factor(facts: Mapping[str, Any]) -> float:
    """Return the factor by which a checkpoint's table weights must be multiplied.

    `facts` is `Manifest.state`. Checkpoints of version 0.2.0 have no factor; for these, return 1.
    """
    return float(facts.get("table_factor", 1.0))


def _table(column: TableColumn) -> list[str]:
    return [column.table_name] if column.table_name != column.name else []


def facts_of(tensors: Mapping[str, Tensor | CanonicalTensor]) -> dict[str, TensorFacts]:
    return {name: (dtype_name(t.dtype), tuple(t.shape)) for name, t in tensors.items()}


def differences(
    saved: Mapping[str, TensorFacts], live: Mapping[str, TensorFacts], needs: str
) -> list[str]:
    """Return messages about tensors whose dtypes or shapes differ, or that only one side has.

    `needs` are the words before the live tensor's facts in a message, such as "the model needs".
    """
    return [
        f"{name} is {_text(saved.get(name), 'missing')}, "
        f"{needs} {_text(live.get(name), 'no such tensor')}"
        for name in sorted({*saved, *live})
        if saved.get(name) != live.get(name)
    ]


def _text(facts: TensorFacts | None, otherwise: str) -> str:
    return otherwise if facts is None else f"{facts[0]} {list(facts[1])}"


def dense_tensors(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the live tensors of a module and its optimizer by name.

    If the optimizer has no state yet, it is created first (`create_state`).

    `dense.NAME` is a parameter or buffer. `dense_optimizer.NAME.KEY` is the optimizer's state of a
    parameter: a tensor of the parameter's shape, or a scalar such as the number of steps.

    >>> layer = nn.Linear(2, 1)
    >>> tensors = dense_tensors(layer, torch.optim.Adagrad(layer.parameters()))
    >>> sorted(tensors)[:3]
    ['dense.bias', 'dense.weight', 'dense_optimizer.bias.step']
    """
    create_state(optimizer)
    tensors: dict[str, Tensor] = module.state_dict(prefix="dense.")
    for held in _held_by(optimizer):
        memory = {k: v for k, v in optimizer.state.get(held, {}).items() if isinstance(v, Tensor)}
        for name, parameter, place in _parts_of(held, module):
            for key, value in memory.items():
                if value.shape == held.shape:
                    value = value.view(-1)[place].view(parameter.shape)
                tensors[f"dense_optimizer.{name}.{key}"] = value
    return tensors


def _held_by(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _parts_of(held: Tensor, module: nn.Module) -> Iterator[tuple[str, Tensor, slice]]:
    """Yield the parameters of `module` whose values are in `held`, a parameter of the optimizer.

    `held` is a parameter of the module itself, or a vector of which several are views. An item is
    the parameter's name, the parameter, and its slice of the flattened `held`.
    """
    memory = held.untyped_storage().data_ptr()
    for name, parameter in module.named_parameters():
        start = parameter.storage_offset() - held.storage_offset()
        inside = 0 <= start <= held.numel() - parameter.numel()
        if parameter.untyped_storage().data_ptr() == memory and inside:
            yield name, parameter, slice(start, start + parameter.numel())


def create_state(optimizer: Optimizer) -> None:
    """Make an optimizer create its state as it is before the first step, for parameters without it.

    Some optimizers create their state only in their first step. So this function makes a step with
    zero gradients and a zero learning rate, which changes no parameter (with another rate,
    decoupled weight decay would). It then sets the new state to zero, including the count of steps.
    """
    held = _held_by(optimizer)
    lacks = [not optimizer.state.get(parameter) for parameter in held]
    if not any(lacks):
        return
    grads = [parameter.grad for parameter in held]
    rates = [group["lr"] for group in optimizer.param_groups]
    for parameter, lack in zip(held, lacks, strict=True):
        parameter.grad = torch.zeros_like(parameter) if lack else None
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = torch.zeros_like(rate) if isinstance(rate, Tensor) else 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for parameter, grad, lack in zip(held, grads, lacks, strict=True):
        parameter.grad = grad
        for value in optimizer.state.get(parameter, {}).values() if lack else ():
            if isinstance(value, Tensor):
                value.zero_()
