"""All embedding tables of a model, those of one width fused into one weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class TableColumn:
    """One categorical column's table.

    Attributes:
        name: The column.
        cardinality: Its ids lie in `0 .. cardinality-1`, which is also the table's row count.
        dim: The width of its embeddings.
    """

    name: str
    cardinality: int
    dim: int

    def __post_init__(self) -> None:
        if self.cardinality < 1 or self.dim < 1:
            raise ValueError(f"a table needs at least one row and one value per row: {self}")


class EmbeddingCollection(nn.Module):
    """One table per column; the tables of equal width are slices of one weight.

    The columns of one width are a group. Groups are ordered by width, columns within a group as
    given. A lookup is then one gather per group instead of one per column.

    The weights are parameters without gradients: `lookup` returns leaves of the autograd graph,
    and `SparseOptimizer` updates the touched rows from the leaves' gradients.

    Each value of a table is drawn uniformly from `-1/sqrt(cardinality) .. 1/sqrt(cardinality)`,
    the rule of facebookresearch/dlrm (`create_emb`), column by column in the order given, so the
    same generator state gives the same tables on every rank.

    Args:
        columns: The tables, in the order of the columns of `ids`.
        generator: Where the initial values come from; `None` for torch's default generator.
        dtype: Of the weights.

    Attributes:
        columns: As given.
        groups: For each group, the positions of its columns in `columns`.
        weights: For each group, `[sum of the cardinalities, dim]`.

    >>> tables = EmbeddingCollection([TableColumn("a", 3, 2), TableColumn("b", 5, 2)])
    >>> [tuple(weight.shape) for weight in tables.weights]
    [(8, 2)]
    >>> tables.keys(torch.tensor([[2, 0], [0, 4]], dtype=torch.int32))
    (tensor([[2, 3],
            [0, 7]]),)
    """

    def __init__(
        self,
        columns: Sequence[TableColumn],
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        self.columns = tuple(columns)
        dims = sorted({column.dim for column in self.columns})
        self.groups = tuple(
            tuple(i for i, column in enumerate(self.columns) if column.dim == dim) for dim in dims
        )
        self.weights = nn.ParameterList()
        for number, (dim, group) in enumerate(zip(dims, self.groups, strict=True)):
            *starts, rows = accumulate((self.columns[i].cardinality for i in group), initial=0)
            weight = torch.empty(rows, dim, dtype=dtype)
            self.weights.append(nn.Parameter(weight, requires_grad=False))
            # Derived from the columns, so not part of the saved state.
            self.register_buffer(f"_starts_{number}", torch.tensor(starts), persistent=False)
            self.register_buffer(f"_positions_{number}", torch.tensor(group), persistent=False)
        self._initialise(generator)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order of the columns of `ids`."""
        return tuple(column.name for column in self.columns)

    def table(self, name: str) -> Tensor:
        """One column's table, `[cardinality, dim]`: a view of its group's weight.

        Raises:
            KeyError: There is no such column.
        """
        if name not in self.names:
            raise KeyError(name)
        position = self.names.index(name)
        number = next(n for n, group in enumerate(self.groups) if position in group)
        start = int(self.get_buffer(f"_starts_{number}")[self.groups[number].index(position)])
        rows: Tensor = self.weights[number].data
        return rows[start : start + self.columns[position].cardinality]

    def keys(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Which rows of the fused weights the ids mean.

        Args:
            ids: `[rows, columns]`, int32 or int64. Each must lie in `0 .. cardinality-1` of its
                column. That is not checked here, where a check would cost as much as the lookup:
                the loader refuses other ids before they get this far. An id past its column's
                end would mean a row of the next column's table.

        Returns:
            For each group `[rows, columns of the group]`, int64, contiguous.
        """
        if ids.shape[1] != len(self.columns):
            raise ValueError(f"{ids.shape[1]} columns of ids for {len(self.columns)} tables")
        keys = []
        for number in range(len(self.groups)):
            own = ids
            if len(self.groups) > 1:
                own = ids.index_select(1, self.get_buffer(f"_positions_{number}"))
            keys.append((own + self.get_buffer(f"_starts_{number}")).contiguous())
        return tuple(keys)

    def gather(self, keys: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The rows that `keys` names, for callers that need the keys again for the update.

        Returns:
            For each group `[rows, columns of the group, dim]`. Where gradients are enabled, each
            is a leaf that requires grad.
        """
        embedded = tuple(
            functional.embedding(own, weight)
            for own, weight in zip(keys, self.weights, strict=True)
        )
        if torch.is_grad_enabled():
            for values in embedded:
                values.requires_grad_()
        return embedded

    def lookup(self, ids: Tensor) -> tuple[Tensor, ...]:
        """The embeddings of `[rows, columns]` ids: `gather(keys(ids))`."""
        return self.gather(self.keys(ids))

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        """The same as `lookup`."""
        return self.lookup(ids)

    def extra_repr(self) -> str:
        """Sizes, for `print(model)`."""
        sizes = ", ".join(f"[{w.shape[0]:,}, {w.shape[1]}]" for w in self.weights)
        return f"{len(self.columns)} columns in {sizes}"

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator | None) -> None:
        for column in self.columns:
            # In place on the slice: a table of many gigabytes is never held twice.
            bound = column.cardinality**-0.5
            self.table(column.name).uniform_(-bound, bound, generator=generator)
