"""distrain's own contenders: the only module that calls its tables and steps."""

from itertools import cycle
from typing import Any

from benchmarks.step_bench.contender import Contender, Setup
from benchmarks.step_bench.data import Rows
from benchmarks.step_bench.dense import LR
from benchmarks.step_bench.laps import Laps


class Path:
    """The embeddings alone: from ids to leaves, from the leaves' gradients to updated rows."""

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        from distrain.models.embeddings import SparseOptimizer

        self.setup, self.rows, self.rank = setup, rows, rank
        switch_as_a_rank(setup, rank)
        self.tables = tables_of(setup, rows)
        self.optimizer = SparseOptimizer(self.tables, setup.kind)

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        import torch

        batches = batches_of(self.setup, self.rows, self.rank, batch_rows)
        self.ids = [batch.categorical for batch in batches]
        shape = (batch_rows, len(self.rows.cardinalities), self.setup.dim)
        self.grads = (torch.randn(shape, device=self.setup.device) / batch_rows,)
        return len(batches)

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        with laps.phase("route"):
            route = self.tables.route(self.ids[number])
        with laps.phase("fetch"):
            rows = self.tables.fetch(route)
        with laps.phase("expand"):
            self.tables.expand(route, rows)
        with laps.phase("collect"):
            sums = self.tables.collect(route, self.grads)
        with laps.phase("exchange"):
            touched = self.tables.exchange(route, sums)
        with laps.phase("apply"):
            self.optimizer.apply(touched, LR)


class Whole:
    """The whole step, built as in a job: placed tables, routed batches, `TrainStep`."""

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        import torch

        from distrain.jobs.assignment import World
        from distrain.models import build_model
        from distrain.train.loop.setup import place_tables, table_factory

        self.setup, self.rows, self.rank = setup, rows, rank
        self.device = torch.device(setup.device)
        switch_as_a_rank(setup, rank)
        self.spec, schema = job_spec(setup), schema_of(rows)
        world = World(rank, setup.ranks, setup.ranks)
        plan = place_tables(self.spec, schema, world, self.device)
        make_tables = table_factory(self.spec, plan, world, self.device)
        self.model = build_model(schema, self.spec.model, seed=0, make_tables=make_tables)
        self.model.to(self.device).train()
        self.train: Any = None
        self.routed: Any = None

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        from distrain.train.loop.routed_batches import routed_batches
        from distrain.train.step.graphed_step import GraphedStep
        from distrain.train.step.step import TrainStep

        if self.setup.graph:
            self.train = GraphedStep(self.model, self.spec.train, self.setup.ranks, batch_rows)
        elif self.train is None:
            self.train = TrainStep(self.model, self.spec.train, self.setup.ranks)
        if self.routed is not None:
            self.routed.close()
        batches = batches_of(self.setup, self.rows, self.rank, batch_rows)
        around = Around(batches)
        every = (batch_rows,) * self.setup.ranks
        self.routed = routed_batches(self.spec, around, self.train, self.device, lambda _: every)
        self.global_rows = batch_rows * self.setup.ranks
        return len(batches)

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        batch, route, _ = self.routed.take(laps)
        self.train(batch, self.global_rows, LR, laps, route)


class Around:
    """Yields batches in memory repeatedly, until closed."""

    def __init__(self, batches: list[Any]):
        self._batches = cycle(batches)
        self._closed = False

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        return next(self._batches)

    def close(self) -> None:
        """End the iteration."""
        self._closed = True


def switch_as_a_rank(setup: Setup, rank: int) -> None:
    """Set torch's switches as a rank does: on a GPU, deterministic algorithms, which cost time."""
    import torch

    from distrain.train.control.rank_setup import seed_everything

    seed_everything(0, rank, torch.device(setup.device))


def tables_of(setup: Setup, rows: Rows) -> Any:
    """Return all tables, on this rank."""
    import torch

    from distrain.models.embeddings import EmbeddingCollection, TableColumn
    from distrain.schema.criteo import CATEGORICAL

    columns = [
        TableColumn(name, count, setup.dim)
        for name, count in zip(CATEGORICAL, rows.cardinalities, strict=True)
    ]
    return EmbeddingCollection(columns, device=torch.device(setup.device))


def schema_of(rows: Rows) -> Any:
    """Return the rows' schema, as `distrain prep` would save it."""
    from distrain.schema import criteo_schema
    from distrain.schema.criteo import CATEGORICAL

    return criteo_schema(dict(zip(CATEGORICAL, rows.cardinalities, strict=True)))


def job_spec(setup: Setup) -> Any:
    """Return the spec of a job with the presets' layers."""
    from benchmarks.step_bench.dense import BOTTOM, CROSSES, DEEP, HIDDEN, TOP
    from distrain.jobs.spec import parse_spec

    layers: dict[str, dict[str, Any]] = {
        "mlp": {"hidden": HIDDEN},
        "dlrm": {"bottom": BOTTOM, "top": TOP},
        "dcn_v2": {"cross_depth": CROSSES, "hidden": DEEP, "structure": "stacked"},
    }
    return parse_spec(
        {
            "data": {"train": "resident"},
            "model": {"kind": setup.model, "embedding_dim": setup.dim, **layers[setup.model]},
            "train": {
                "optimizer": {"kind": setup.kind, "lr": LR},
                "precision": setup.precision,
                "cuda_graph": setup.graph,
            },
            # The tables fit, because the benchmark has chosen their size. Memory that other
            # processes use must not change their placement.
            "embeddings": {"placement": setup.placement or "auto", "memory_gib": 4096},
        }
    )


def batches_of(setup: Setup, rows: Rows, rank: int, batch_rows: int) -> list[Any]:
    """Return a rank's batches on its device, in the loader's layout: each column contiguous."""
    import torch

    from distrain.loader.batch import Batch
    from distrain.schema.criteo import CATEGORICAL, CONTINUOUS

    def moved(values: Any) -> Any:
        return torch.from_numpy(values.copy()).to(setup.device)

    return [
        Batch(
            moved(rows.ids[:, part]).T,
            moved(rows.continuous[:, part]).T,
            moved(rows.label[part]),
            CATEGORICAL,
            CONTINUOUS,
        )
        for part in rows.batches(batch_rows, rank, setup.ranks)
    ]


def path(setup: Setup, rows: Rows, rank: int) -> Contender:
    """Open the embeddings alone."""
    return Path(setup, rows, rank)


def whole(setup: Setup, rows: Rows, rank: int) -> Contender:
    """Open the whole step."""
    return Whole(setup, rows, rank)
