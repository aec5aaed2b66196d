"""Everything that the rest of a training depends on, but for its data."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from distrain.checkpoint.dense import dense_tensors
from distrain.checkpoint.manifest import TensorFacts
from distrain.embeddings import SparseOptimizer, TableColumn
from distrain.embeddings.canonical import CanonicalTensor, canonical_memory, canonical_weights
from distrain.errors import DataError
from distrain.models import ClickModel
from distrain.models.tensor_file import dtype_name


class TrainingState:
    """A model and its optimizers, as tensors by name that no placement shows in.

    Tables and what their optimizer remembers are in canonical form, the dense part goes by the
    parameters' names. So what is saved of one fits another, whatever the placement of the tables,
    the number of ranks and the way in which the dense parameters are held.

    Args:
        model: On its device.
        sparse_optimizer: Of its tables.
        dense_optimizer: Torch's, of its dense part: what does the work, and holds the state.
    """

    def __init__(
        self, model: ClickModel, sparse_optimizer: SparseOptimizer, dense_optimizer: Optimizer
    ):
        self.model = model
        self.sparse_optimizer = sparse_optimizer
        self.dense_optimizer = dense_optimizer

    @property
    def device(self) -> torch.device:
        """Where the dense part is, and where a backend wants what the ranks exchange."""
        dense = next(iter(self.model.dense.parameters()), None)
        return (self.model.embeddings.weights[0] if dense is None else dense).device

    def tensors(self) -> dict[str, Tensor | CanonicalTensor]:
        """The live tensors by name, good until the next step: what is written to them counts.

        `dense.PARAMETER`, `dense_optimizer.PARAMETER.KEY`, `embeddings.weights.GROUP` and
        `sparse_optimizer.GROUP.KEY`; the same names, shapes and types on every rank.
        """
        tables = canonical_weights(self.model.embeddings)
        memory = canonical_memory(self.sparse_optimizer)
        return {
            **dense_tensors(self.model.dense, self.dense_optimizer),
            **{f"embeddings.{name}": tensor for name, tensor in tables.items()},
            **{f"sparse_optimizer.{name}": tensor for name, tensor in memory.items()},
        }

    def facts(self) -> dict[str, Any]:
        """What is to be saved beside the tensors, as JSON values."""
        return {"columns": self._columns(), "sparse_steps": self.sparse_optimizer.num_steps}

    def adopt(self, facts: Mapping[str, Any]) -> None:
        """Take over what `facts` said when the tensors were saved."""
        self.sparse_optimizer.num_steps = facts["sparse_steps"]

    def check_fits(
        self, facts: Mapping[str, Any], tensors: Mapping[str, TensorFacts], url: str
    ) -> None:
        """Make sure that what was saved is of such a model with such optimizers.

        Args:
            facts: What `facts` said when it was saved.
            tensors: dtype and shape of what was saved.
            url: Of the checkpoint, for messages.

        Raises:
            DataError: It is not.
        """
        if not isinstance(facts.get("sparse_steps"), int):
            raise DataError(
                "the checkpoint does not say how many steps its tables have taken",
                where={"path": url},
            )
        if facts.get("columns") != self._columns():
            raise DataError(
                "the checkpoint's tables are not the model's",
                where={"path": url, "saved": facts.get("columns"), "model": self._columns()},
                hint="Columns, their cardinalities, widths, combiners and tables must be the same.",
            )
        live = facts_of(self.tensors())
        problems = [
            f"{name} is {_text(tensors.get(name), 'missing')}, "
            f"this training needs {_text(live.get(name), 'no such tensor')}"
            for name in sorted(set(tensors) | set(live))
            if tensors.get(name) != live.get(name)
        ]
        if problems:
            raise DataError(
                "the saved tensors do not fit:\n  " + "\n  ".join(problems),
                where={"path": url},
                hint="The model, its tables and the kinds of optimizers must be those that were "
                "saved.",
            )

    def _columns(self) -> list[list[str | int | None]]:
        return [
            # Its table only where that has another name: older checkpoints say no tables.
            [column.name, column.cardinality, column.dim, column.combiner, *_table(column)]
            for column in self.model.embeddings.columns
        ]


def _table(column: TableColumn) -> list[str]:
    return [column.table_name] if column.table_name != column.name else []


def facts_of(tensors: Mapping[str, Tensor | CanonicalTensor]) -> dict[str, TensorFacts]:
    """Of each tensor the dtype and the shape."""
    return {name: (dtype_name(t.dtype), tuple(t.shape)) for name, t in tensors.items()}


def _text(facts: TensorFacts | None, otherwise: str) -> str:
    return otherwise if facts is None else f"{facts[0]} {list(facts[1])}"
