"""Writes `runs.tar.xz`: a run directory as the version before checkpoints named their run left it.

It was run once, with that version: `cd EMPTY && python write.py`. Kept to tell what is in it. The
run `in-default` keeps its checkpoints in its directory, `in-relative` in the relative `states`.
Both stopped after step 4; `data` is what they were trained on.
"""

import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.running import LoggedProgress, RunRequest, train
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.spec import parse_spec

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
        ColumnSchema("x", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("a", "int32", (Tags.CATEGORICAL,), cardinality=5),
        ColumnSchema("b", "int32", (Tags.CATEGORICAL,), cardinality=9),
    )
)


def write_data(folder: Path) -> None:
    """96 rows."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    x = rng.standard_normal(96).astype(np.float32)
    columns = {
        "label": (x + rng.standard_normal(96) > 0).astype(np.float32),
        "x": x,
        "a": rng.integers(0, 5, 96).astype(np.int32),
        "b": rng.integers(0, 9, 96).astype(np.int32),
    }
    pq.write_table(pa.table(columns), folder / "part-0.parquet", row_group_size=24)
    SCHEMA.save(folder / "schema.pbtxt")


def document() -> dict[str, object]:
    """The job, for 4 steps."""
    return {
        "name": "old",
        "data": {"train": "data/part-0.parquet", "schema": "data/schema.pbtxt"},
        "model": {"kind": "mlp", "embedding_dim": 2, "hidden": [3]},
        "train": {"global_batch_size": 12, "log_every_steps": 3, "max_steps": 4, "lanes": 4},
        "checkpoint": {"every_steps": 2, "every_s": None},
        "resources": {"backend": "inline", "device": "cpu"},
    }


def main() -> None:
    """Train both, and pack them."""
    write_data(Path("data"))
    for name, overrides in (("in-default", []), ("in-relative", ["checkpoint.dir=states"])):
        spec = parse_spec(document(), overrides)
        train(RunRequest(spec, Path(name), f"old-{name}"), LoggedProgress())
        for file in ("curves.png", "summary.json"):
            if name == "in-default" or file == "curves.png":
                Path(name, file).unlink()
    with tarfile.open(Path(__file__).with_name("runs.tar.xz"), "w:xz") as archive:
        for name in ("data", "in-default", "in-relative", "states"):
            archive.add(name)


if __name__ == "__main__":
    main()
