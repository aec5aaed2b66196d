"""distrain's own contenders: the one place that knows how tables and steps are called."""

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
    """What a rank builds and does for a job: placed tables, routed batches, `TrainStep`.

    On a GPU routes are made ahead in a thread, as in a job; on a CPU, where that thread would take
    a core which the peers have no use for, in the step itself.
    """

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
    """Batches in memory, again and again, until closed."""

    def __init__(self, batches: list[Any]):
        self._batches = cycle(batches)
        self._closed = False

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        return next(self._batches)

    def close(self) -> None:
        """End them."""
        self._closed = True


def switch_as_a_rank(setup: Setup, rank: int) -> None:
    """Torch's switches as a rank has them: on a GPU, deterministic algorithms, which cost time."""
    import torch

    from distrain.train.control.rank_setup import seed_everything

    seed_everything(0, rank, torch.device(setup.device))


def tables_of(setup: Setup, rows: Rows) -> Any:
    """All tables on this rank."""
    import torch

    from distrain.models.embeddings import EmbeddingCollection, TableColumn
    from distrain.schema.criteo import CATEGORICAL

    columns = [
        TableColumn(name, count, setup.dim)
        for name, count in zip(CATEGORICAL, rows.cardinalities, strict=True)
    ]
    return EmbeddingCollection(columns, device=torch.device(setup.device))


def schema_of(rows: Rows) -> Any:
    """The rows' schema, as `distrain prep` would save it."""
    from distrain.schema import criteo_schema
    from distrain.schema.criteo import CATEGORICAL

    return criteo_schema(dict(zip(CATEGORICAL, rows.cardinalities, strict=True)))


def job_spec(setup: Setup) -> Any:
    """A job with the presets' layers."""
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
                "compile": setup.compile,
                "cuda_graph": setup.graph,
                "route_ahead": 2 if setup.cuda else 0,
            },
            # They fit: the benchmark has chosen their size. What others take meanwhile is no reason
            # to place them otherwise.
            "embeddings": {"placement": setup.placement or "auto", "memory_gib": 4096},
        }
    )


def batches_of(setup: Setup, rows: Rows, rank: int, batch_rows: int) -> list[Any]:
    """A rank's batches on its device, laid out as the loader's: each column contiguous."""
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
