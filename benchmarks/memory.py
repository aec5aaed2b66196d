"""Compare the memory that `distrain plan` predicts for a rank with the memory that a rank takes.

    python benchmarks/memory.py [--quick] [--only WORD]

Each case is a job as `distrain train` runs it: a dozen steps over generated rows, with ids by Zipf
laws over the cardinalities of Criteo's 1TB logs, or a fraction of them. First `distrain plan`
predicts a rank's memory in a separate process. Then ranks train, save the model, and report the
peak of their processes. The goal is a prediction within 10 % of every rank's peak. Without
`--quick`, one case has tables of 45.9M rows, sharded over two ranks with row-wise Adagrad: a rank
must stay below 4 GB.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import yaml

from benchmarks.loader_bench.data import make_data, schema
from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.workers.local import local_cluster

GOAL_WITHIN = 0.10
GOAL_LARGEST_BYTES = 4e9
DIM = 16
STEPS = 12
ROWS = 1_000_000
SMALL, MEDIUM, WHOLE = 0.02, 0.2, 1.0
"""Factors on Criteo's cardinalities: tables of 0.9M, 9.2M and 45.9M rows."""


@dataclass(frozen=True)
class Case:
    """One job."""

    model: str
    batch_rows: int
    optimizer: str
    num_ranks: int
    placement: str = "replicated"
    scale: float = SMALL

    @property
    def name(self) -> str:
        """Its name in the table and for `--only`."""
        rows = f"{table_rows(self.scale) / 1e6:.1f}M"
        ranks = f"{self.num_ranks} rank{'s' if self.num_ranks > 1 else ''}"
        return f"{self.model} {self.batch_rows // 1024}k {self.optimizer} {rows} {ranks}" + (
            f" {self.placement}" if self.num_ranks > 1 else ""
        )

    def document(self, data: Path) -> dict[str, Any]:
        """Return the job's spec."""
        return {
            "name": "memory",
            "data": {"train": str(data / "prep")},
            "model": {"kind": self.model, "embedding_dim": DIM},
            "train": {
                "global_batch_size": self.batch_rows,
                "max_steps": STEPS,
                "optimizer": {"kind": self.optimizer},
            },
            "embeddings": {"placement": self.placement, "memory_gib": 16},
            "resources": {"num_ranks": self.num_ranks, "threads_per_rank": 1, "device": "cpu"},
            # A job of so few steps writes no checkpoint, but the plan would count the copy for one.
            "checkpoint": {"every_s": None, "at_end": False},
        }


QUICK = (
    Case("mlp", 8_192, "sgd", 1),
    Case("mlp", 65_536, "adam", 1),
    Case("dlrm", 65_536, "sgd", 2, "row_wise"),
)
LARGEST = Case("mlp", 65_536, "rowwise_adagrad", 2, "row_wise", WHOLE)
FULL = (
    *QUICK,
    Case("mlp", 65_536, "sgd", 1),
    Case("mlp", 65_536, "rowwise_adagrad", 2),
    Case("mlp", 8_192, "adam", 2, "row_wise"),
    Case("dlrm", 8_192, "rowwise_adagrad", 1),
    Case("dlrm", 65_536, "rowwise_adagrad", 1),
    Case("dlrm", 65_536, "adam", 2),
    Case("dlrm", 65_536, "adam", 2, "row_wise", MEDIUM),
    LARGEST,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three cases with small tables")
    parser.add_argument("--only", default="", help="run the cases whose names contain this word")
    options = parser.parse_args()
    cases = [c for c in (QUICK if options.quick else FULL) if options.only in c.name]
    with tempfile.TemporaryDirectory() as folder, local_cluster(2, 1, "cpu", ":0") as client:
        results = list(measured(cases, Path(folder), client))
    print(json.dumps(summary(results)))


def measured(cases: list[Case], folder: Path, client: Any) -> Iterator[dict[str, Any]]:
    """Yield each case's figures, and print them."""
    print(f"{'':46}{'predicted MB':>13}{'measured MB':>16}  ratio")
    for case in cases:
        data = folder / f"scale-{case.scale}"
        if not data.exists():
            data.mkdir()
            make_data(data, ROWS, ["prep"], case.scale)
        document = case.document(data)
        plan = predict(document, folder / "job.yaml")
        peaks = train(client, document, folder)
        predicted = plan["peak"]["host_bytes"]
        ratios = [predicted / peak for peak in peaks]
        found = " ".join(f"{peak / 1e6:,.0f}" for peak in peaks)
        told = " ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"{case.name:46}{predicted / 1e6:>13,.0f}{found:>16}  {told}", flush=True)
        yield {
            "case": case.name,
            "predicted_bytes": predicted,
            "measured_bytes": peaks,
            "ratios": [round(ratio, 4) for ratio in ratios],
            "terms": {t["name"]: t["host_bytes"] for t in plan["peak"]["terms"]},
        }


def table_rows(scale: float) -> int:
    """Return the number of rows of all tables together."""
    return sum(column.cardinality or 0 for column in schema(scale).columns)


def predict(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the JSON of `distrain plan`; its own process is part of the prediction."""
    path.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "distrain", "plan", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def train(client: Any, document: dict[str, Any], folder: Path) -> list[int]:
    """Run the job; return each rank's peak memory in bytes."""
    spec = parse_spec(document)
    job = JobHandle(client, new_job_id(spec.name))
    job.submit(spec, folder / job.job_id)
    view = job.watch(lambda view: None)
    raise_for_state(view)
    return [peak["host_bytes"] for peak in view.rank_peak_memory]


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all figures as one JSON document."""
    worst = max(abs(ratio - 1) for result in results for ratio in result["ratios"])
    document: dict[str, Any] = {
        "benchmark": "memory",
        "steps": STEPS,
        "cases": results,
        "worst_error": round(worst, 4),
        "goal": f"within {GOAL_WITHIN}",
        "met": worst <= GOAL_WITHIN,
    }
    largest = next((r for r in results if r["case"] == LARGEST.name), None)
    if largest is not None:
        peak = max(largest["measured_bytes"])
        document |= {
            "largest_tables_rows": table_rows(WHOLE),
            "largest_tables_bytes_per_rank": peak,
            "largest_tables_goal_bytes": GOAL_LARGEST_BYTES,
            "largest_tables_met": peak < GOAL_LARGEST_BYTES,
        }
        document["met"] = document["met"] and document["largest_tables_met"]
    return document


if __name__ == "__main__":
    main()
