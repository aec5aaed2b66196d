"""A rank takes as much memory as the plan of its job says."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_jobs import CARDINALITIES, draw_rows, run_distrain
from yaml import safe_dump

from distrain.schema import criteo_schema

ROWS = 40_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    pq.write_table(draw_rows(ROWS, seed=1), folder / "part.parquet", row_group_size=10_000)
    # Ids stay below the small cardinalities; the tables are larger than what they touch.
    criteo_schema({name: 20_000 + n for name, n in CARDINALITIES.items()}).save(
        folder / "schema.pbtxt"
    )
    return folder


@pytest.mark.slow
def test_the_predicted_peak_of_two_ranks_is_near_the_measured_one(
    data: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    document = {
        "data": {"train": str(data / "part.parquet")},
        "model": {"kind": "dlrm", "embedding_dim": 16},
        "train": {"global_batch_size": 20_000, "epochs": 3, "optimizer": {"kind": "adam"}},
        "embeddings": {"placement": "row_wise", "memory_gib": 4},
        "resources": {"num_ranks": 2, "device": "cpu"},
        "checkpoint": {"every_steps": 2, "every_s": None, "at_end": False},
    }
    job.write_text(safe_dump(document))
    planned = run_distrain("plan", job, "--json")
    assert planned.returncode == 0, planned.stderr
    peak = json.loads(planned.stdout)["peak"]
    assert peak["device_bytes"] == 0
    assert peak["host_bytes"] == sum(term["host_bytes"] for term in peak["terms"])
    terms = {term["name"]: term["host_bytes"] for term in peak["terms"]}
    # More than what any process takes that has torch in it: the job's own share counts.
    assert peak["host_bytes"] > 1.4 * terms["process"]
    trained = run_distrain("train", job, "--run-dir", tmp_path / "run")
    assert trained.returncode == 0, trained.stderr
    measured = json.loads((tmp_path / "run" / "summary.json").read_text())["peak_memory"]
    assert len(measured) == 2
    for of_rank in measured:
        assert of_rank["host_bytes"] == pytest.approx(peak["host_bytes"], rel=0.15)
