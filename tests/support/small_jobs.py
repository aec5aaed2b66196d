"""Small prepared data with something to learn, small specs, and the real command."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.schema import criteo_schema
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS

CARDINALITIES = {name: 3 + 37 * i for i, name in enumerate(CATEGORICAL)}
ROWS_PER_FILE, ROW_GROUP_ROWS = 3_500, 1_000
TRAIN_FILES = 3


@cache
def draw_rows(rows: int, seed: int) -> pa.Table:
    """Prepared Criteo-shaped rows whose labels depend on I1, I2 and C5."""
    rng = np.random.default_rng(seed)
    continuous = {c: rng.standard_normal(rows).astype(np.float32) for c in CONTINUOUS}
    ids = {
        c: np.minimum(rng.zipf(1.4, rows) - 1, CARDINALITIES[c] - 1).astype(np.int32)
        for c in CATEGORICAL
    }
    logit = -1.0 + continuous["I1"] + 0.7 * continuous["I2"] + np.sin(3.0 * ids["C5"])
    label = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return pa.table({"label": label, **continuous, **ids})


def write_prepared(root: Path) -> Path:
    """A folder as `distrain prep` leaves it: train/, valid/, schema.pbtxt."""
    for split, files, first_seed in (("train", TRAIN_FILES, 50), ("valid", 1, 60)):
        (root / split).mkdir(parents=True)
        for number in range(files):
            rows = draw_rows(ROWS_PER_FILE, first_seed + number)
            path = root / split / f"part-{number}.parquet"
            pq.write_table(rows, path, row_group_size=ROW_GROUP_ROWS, compression="lz4")
    criteo_schema(CARDINALITIES).save(root / "schema.pbtxt")
    return root


def small_document(prepared: Path) -> dict[str, object]:
    """A small, quick MLP job on two ranks, as a spec file holds it."""
    return {
        "name": "test",
        "data": {"train": str(prepared / "train"), "valid": str(prepared / "valid")},
        "model": {"kind": "mlp", "embedding_dim": 4, "hidden": [16]},
        "train": {
            "global_batch_size": 200,
            "max_steps": 20,
            "log_every_steps": 5,
            "optimizer": {"kind": "adagrad", "lr": 0.02},
        },
        "resources": {"num_ranks": 2, "device": "cpu"},
    }


def make_spec(prepared: Path, *overrides: str) -> JobSpec:
    """The same, checked, with some fields set."""
    return parse_spec(small_document(prepared), overrides)


def distrain_command(*args: object) -> list[str]:
    """The real command, in this interpreter."""
    return [sys.executable, "-m", "distrain", *map(str, args)]


def run_distrain(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own, to its end."""
    return subprocess.run(
        distrain_command(*args),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
    )


def is_running(pid: int) -> bool:
    """Whether a process still runs; one that ended, but that nobody has asked after, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def saved_weights(run: Path) -> dict[str, bytes]:
    """The bytes of each tensor of a run's model."""
    tensors = load_file(RunPaths(run).model / "weights.safetensors")
    return {name: tensor.tobytes() for name, tensor in tensors.items()}
