"""The job whose steps are predicted and measured, its rows, and the orders that ranks are given."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.end_to_end_bench.rows import SEED, draw_group, write_schema
from distrain.jobs.assignment import Assignment, Rendezvous, World
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.scheduler.rendezvous import Stores

SCALE, CLICK_RATE = 0.01, 0.03
ROW_GROUP_ROWS = 1024
THREADS = 1


def write_rows(folder: Path, rows: int) -> None:
    """`train` and the schema, as `distrain prep` leaves them; at most 65,536 rows."""
    import pyarrow.parquet as pq

    from distrain.prep.synthetic.planted import PlantedModel

    write_schema(folder, SCALE)
    table = draw_group(PlantedModel.fit(SEED, SCALE, CLICK_RATE), "train", 0, SCALE)[0]
    (folder / "train").mkdir()
    pq.write_table(
        table.slice(0, rows), folder / "train" / "part-0.parquet", row_group_size=ROW_GROUP_ROWS
    )


def job(data: Path, ranks: int, rank_rows: int, steps: int, window: int) -> JobSpec:
    """A DLRM on generated rows, which saves nothing on its way."""
    return parse_spec(
        {
            "name": "plan-scale",
            "data": {"train": str(data / "train"), "drop_last": True},
            "model": {
                "kind": "dlrm",
                "embedding_dim": 16,
                "bottom": [128, 64],
                "top": [64, 128, 256],
            },
            "train": {
                "global_batch_size": ranks * rank_rows,
                "epochs": 1_000_000,
                "max_steps": steps,
                "log_every_s": 0,
                "log_every_steps": window,
                "optimizer": {"kind": "adagrad", "lr": 0.02},
            },
            "checkpoint": {"every_s": None, "at_end": False},
            "resources": {"num_ranks": ranks, "device": "cpu", "threads_per_rank": THREADS},
        }
    )


@dataclass
class Orders:
    """Makes orders for ranks that meet at a store on this host.

    Attributes:
        here: This host's address.
        folder: Takes the run directories.
    """

    here: str
    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._store = Stores().open(self.here)

    def train(self, spec: JobSpec) -> list[dict[str, Any]]:
        """One for each rank of the job."""
        name, ranks = f"job-{next(self._numbers)}", spec.resources.num_ranks
        meeting = Rendezvous(self.here, self._store.port, name) if ranks > 1 else None
        return [
            {
                "do": "train",
                "assignment": Assignment(
                    name,
                    1,
                    World(rank, ranks),
                    spec.model_dump(mode="json"),
                    str(self.folder / name),
                    meeting,
                ).dumps(),
            }
            for rank in range(ranks)
        ]

    def collectives(self, ranks: int, sizes: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
        """One for each of so many ranks."""
        words = {
            "store": [self.here, self._store.port],
            "key": f"collectives-{next(self._numbers)}",
            "hosts": [f"node {rank}" for rank in range(ranks)],
            "message_bytes": sizes,
            "message_budget_s": 30.0,
            "repeats": repeats,
            "peer_s": 60.0,
        }
        return [{"do": "collectives", "words": words | {"rank": rank}} for rank in range(ranks)]
