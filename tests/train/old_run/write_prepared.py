"""Writes `prepared.tar.xz`: prepared data, its workflow and a run, as an earlier version left them.

It was run once, with the last version that had one folder `coordinator`: `cd EMPTY && python
write_prepared.py`. Kept to document the archive. Two ranks under Dask trained the run for 6 steps;
`logits.json` has its model's logits of the first rows.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.etl import (
    Categorify,
    Clip,
    ColumnGroup,
    FillMissing,
    LogOp,
    Normalize,
    Workflow,
    output_schema,
)
from distrain.loader import Dataset, Loader
from distrain.models import load_model
from distrain.running import LoggedProgress, RunRequest, train
from distrain.spec import parse_spec

NUM_ROWS, BATCH_ROWS = 96, 12


def write_data(folder: Path) -> None:
    """Raw rows, and what a workflow made of them."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    counts = rng.poisson(3.0, NUM_ROWS)
    raw = pa.table(
        {
            "label": (counts + rng.standard_normal(NUM_ROWS) > 3).astype(np.int32),
            "I1": pa.array(counts, mask=rng.random(NUM_ROWS) < 0.1),
            "C1": rng.choice(list("abcde"), NUM_ROWS),
            "C2": rng.choice(["x", "y", "zebra", None], NUM_ROWS),
        }
    )
    pq.write_table(raw, folder / "raw.parquet")
    numbers = ColumnGroup(("I1",), (FillMissing(0), Clip(min=0), LogOp(), Normalize()))
    names = ColumnGroup(("C1", "C2"), (Categorify(),))
    workflow = Workflow((numbers, names)).fit([raw])
    workflow.save(folder / "workflow")
    pq.write_table(workflow.transform(raw), folder / "part-0.parquet", row_group_size=24)
    output_schema(workflow, workflow.cardinalities).save(folder / "schema.pbtxt")


def document() -> dict[str, object]:
    """The job, for 6 steps."""
    return {
        "name": "old",
        "data": {"train": "data/part-0.parquet", "schema": "data/schema.pbtxt"},
        "model": {"kind": "mlp", "embedding_dim": 2, "hidden": [3]},
        "train": {
            "global_batch_size": BATCH_ROWS,
            "log_every_steps": 3,
            "max_steps": 6,
            "lanes": 4,
        },
        "checkpoint": {"every_steps": 3, "every_s": None, "keep": 1},
        "resources": {"num_ranks": 2, "device": "cpu"},
    }


def main() -> None:
    """Prepare, train, and pack."""
    write_data(Path("data"))
    train(RunRequest(parse_spec(document()), Path("run"), "old-run"), LoggedProgress())
    Path("run/curves.png").unlink(missing_ok=True)
    model = load_model("run/model").model.eval()
    rows = Dataset("data/part-0.parquet", "data/schema.pbtxt")
    batch = next(iter(Loader(rows, batch_size=BATCH_ROWS, shuffle="none")))
    Path("logits.json").write_text(json.dumps(model(batch).tolist()))
    with tarfile.open(Path(__file__).with_name("prepared.tar.xz"), "w:xz") as archive:
        for name in ("data", "run", "logits.json"):
            archive.add(name)


if __name__ == "__main__":
    main()
