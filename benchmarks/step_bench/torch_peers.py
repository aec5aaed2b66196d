"""The peer in plain torch: an `nn.Embedding(sparse=True)` per column, also under DDP."""

from typing import Any

from benchmarks.step_bench.contender import Contender, Setup
from benchmarks.step_bench.data import Rows
from benchmarks.step_bench.dense import LR, loss_of, mlp_dense
from benchmarks.step_bench.laps import Laps


class Batches:
    """A rank's batches, with one tensor of ids per column, and inputs of the dense layers.

    Ids are int64: `nn.Embedding` also takes int32, but then copies them for its gradient.
    """

    def __init__(self, setup: Setup, rows: Rows, rank: int, batch_rows: int):
        import torch

        def moved(values: Any) -> Any:
            return torch.from_numpy(values).to(setup.device)

        parts = rows.batches(batch_rows, rank, setup.ranks)
        self.ids = [
            [moved(column.astype("int64")) for column in rows.ids[:, part]] for part in parts
        ]
        self.continuous = [moved(rows.continuous[:, part].T.copy()) for part in parts]
        self.label = [moved(rows.label[part].copy()) for part in parts]


class SparseTables:
    """26 tables, one gather each, one sparse gradient each; under DDP with several ranks."""

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        import torch
        from torch import nn

        self.setup, self.rows, self.rank = setup, rows, rank
        tables = [
            nn.Embedding(count, setup.dim, sparse=True, _weight=fresh(count, setup))
            for count in rows.cardinalities
        ]
        self.tables = nn.ModuleList(tables)
        sparse = torch.optim.SparseAdam if setup.kind == "adam" else torch.optim.SGD
        self.optimizers: list[Any] = [sparse(list(self.tables.parameters()), lr=LR)]
        self.whole: Any = None
        if setup.model != "path":
            dense = mlp_dense(setup.dim).to(setup.device)
            fused = torch.optim.Adam if setup.kind == "adam" else torch.optim.SGD
            self.optimizers.append(fused(dense.parameters(), lr=LR, fused=True))
            self.whole = tables_and_dense(self.tables, dense)
            if setup.ranks > 1:
                from torch.nn.parallel import DistributedDataParallel

                self.whole = DistributedDataParallel(self.whole, gradient_as_bucket_view=True)

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        import torch

        self.batches = Batches(self.setup, self.rows, self.rank, batch_rows)
        width = len(self.tables) * self.setup.dim
        self.grad = torch.randn(batch_rows, width, device=self.setup.device) / batch_rows
        return len(self.batches.ids)

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        ids = self.batches.ids[number]
        with laps.phase("forward"):
            if self.whole is None:
                output = looked_up(self.tables, ids)
            else:
                logits = self.whole(ids, self.batches.continuous[number])
                output = loss_of(logits, self.batches.label[number])
        with laps.phase("backward"):
            output.backward(self.grad if self.whole is None else None)
        with laps.phase("update"):
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)


def tables_and_dense(tables: Any, dense: Any) -> Any:
    """Return the module that DDP wraps."""
    from torch import nn

    class TablesAndDense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.dense = tables, dense

        def forward(self, ids: list[Any], continuous: Any) -> Any:
            return self.dense([looked_up(self.tables, ids, continuous)])

    return TablesAndDense()


def looked_up(tables: Any, ids: list[Any], *others: Any) -> Any:
    """Return all columns' embeddings and the other inputs, concatenated: `[rows, width]`."""
    import torch

    values = [table(column) for table, column in zip(tables, ids, strict=True)]
    return torch.cat([*values, *others], dim=1)


def fresh(count: int, setup: Setup) -> Any:
    """Return a table's initial values, small and uniformly distributed."""
    import torch

    weight = torch.empty(count, setup.dim, device=setup.device)
    return weight.uniform_(-0.01, 0.01)


def sparse_tables(setup: Setup, rows: Rows, rank: int) -> Contender:
    """Open the contender."""
    return SparseTables(setup, rows, rank)
