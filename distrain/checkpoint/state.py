"""Everything that the rest of a training depends on, but for its data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from distrain.checkpoint.dense import dense_tensors
from distrain.checkpoint.folder import load_folder, read_values, save_folder
from distrain.embeddings import SparseOptimizer
from distrain.embeddings.canonical import canonical_memory, canonical_weights
from distrain.errors import DataError
from distrain.models import ClickModel
from distrain.models.tensor_file import Slabs


class TrainingState:
    """A model and its optimizers, which are saved to a folder and loaded from one.

    The folder holds tables and what their optimizer remembers in canonical form, and the dense part
    by the parameters' names. So it may be loaded whatever the placement of the tables, the number
    of ranks and the way in which the dense parameters are held, and these leave no trace in it.

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

    def save(
        self, path: str | Path, values: Mapping[str, Any] | None = None, *, replace: bool = False
    ) -> None:
        """Write a folder; every rank calls it, and it is collective if tables are row-wise.

        Args:
            path: A local folder that does not exist yet.
            values: What else to keep, as JSON values, such as the state of a loader.
            replace: Whether an existing folder may be replaced.

        Raises:
            OutputError: It exists already and `replace` is false, or could not be written.
            torch.distributed.DistError: Rank 0 could not write it; it says why itself.
        """
        tables = self.model.embeddings
        save_folder(
            path,
            self._tensors(),
            {
                "columns": self._columns(),
                "sparse_steps": self.sparse_optimizer.num_steps,
                "more": dict(values or {}),
            },
            peers=tables.peers,
            device=tables.weights[0].device,
            replace=replace,
        )

    def load(self, path: str | Path) -> dict[str, Any]:
        """Take over what a folder holds; every rank that calls it reads its own rows.

        If bytes turn out to be damaged, a part has been taken over already: load another folder.

        Returns:
            The values that were saved with it.

        Raises:
            DataError: It is missing, incomplete or damaged, or not of such a model with such
                optimizers.
        """
        columns = read_values(path).get("columns")
        if columns != self._columns():
            raise DataError(
                "the checkpoint's tables are not the model's",
                where={"path": str(path), "saved": columns, "model": self._columns()},
                hint="The columns, their cardinalities, widths and combiners must be the same.",
            )
        saved = load_folder(path, self._tensors())
        self.sparse_optimizer.num_steps = saved["sparse_steps"]
        more: dict[str, Any] = saved["more"]
        return more

    def _tensors(self) -> dict[str, Tensor | Slabs]:
        tables = canonical_weights(self.model.embeddings)
        memory = canonical_memory(self.sparse_optimizer)
        return {
            **dense_tensors(self.model.dense, self.dense_optimizer),
            **{f"embeddings.{name}": slabs for name, slabs in tables.items()},
            **{f"sparse_optimizer.{name}": slabs for name, slabs in memory.items()},
        }

    def _columns(self) -> list[list[str | int | None]]:
        return [
            [column.name, column.cardinality, column.dim, column.combiner]
            for column in self.model.embeddings.columns
        ]
