"""Predicts customers' next purchases in UCI's Online Retail log: two towers against popularity.

    python examples/online_retail.py online_retail.csv.gz

docs/examples.md has the protocol and the results.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import torch
import yaml
from online_retail_data import Shop

from distrain.loader import Dataset, Loader
from distrain.metrics import RankingMetrics, top_items
from distrain.models import load_model
from distrain.models.zoo.two_tower import tower_vectors

K = 10


def main():
    """Prepare, train, evaluate; the last line is JSON."""
    args = arguments()
    shop = Shop(args.log, args.split, args.end)
    work = Path(tempfile.mkdtemp(prefix="online-retail-", dir=args.work))
    shop.write(work, since=days_before(args.split, args.days))
    train(args, work)

    month_ago = days_before(args.split, 30)
    ways = {
        "two-tower": model_scores(work),
        "popularity": popularity(shop, ""),
        "popularity, last 30 days": popularity(shop, month_ago),
        "own favourites": favourites(shop),
    }
    recalls = {}
    for protocol, hidden in (("all items", None), ("new items", shop.bought)):
        wanted = shop.relevant if hidden is None else without(shop.relevant, hidden)
        print(f"\n{protocol:<26} recall@{K}  capped  hit rate  ndcg@{K}  customers")
        for way, scores in ways.items():
            metrics = RankingMetrics(K)
            metrics.update(top_items(scores, K, hidden), wanted)
            result = metrics.compute()
            recalls[f"{way}, {protocol}"] = result.recall
            print(
                f"{way:<26} {result.recall:9.4f} {result.capped_recall:7.4f} "
                f"{result.hit_rate:9.4f} "
                f"{result.ndcg:8.4f} {result.users:10}"
            )
    print(json.dumps(recalls))


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, help="the log, a .csv.gz with eight columns")
    parser.add_argument("--split", default="2011-04-16", help="the first day to predict")
    parser.add_argument(
        "--end", help="the day after the last one to predict; default: all later days"
    )
    parser.add_argument("--days", type=int, help="days before the split to train on; default: 60")
    parser.add_argument("--epochs", type=int, help="passes over the training rows; default: 4")
    parser.add_argument("--quick", action="store_true", help="20 days and one pass, unless given")
    parser.add_argument("--ranks", type=int, default=1, help="number of ranks")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/examples"), help="the folder for all output"
    )
    args = parser.parse_args()
    days, epochs = (20, 1) if args.quick else (60, 4)
    args.days, args.epochs = args.days or days, args.epochs or epochs
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def days_before(day, count):
    """Return the day `count` days earlier, as text."""
    return (date.fromisoformat(day) - timedelta(days=count)).isoformat()


def train(args, work):
    """Train two towers with `distrain train`, each row against the other items of its batch."""
    job = {
        "name": "online-retail",
        "data": {"train": str(work / "train"), "schema": str(work / "schema.json")},
        "model": {
            "kind": "two_tower",
            "embedding_dim": 64,
            "tower": [64],
            "task": "retrieval",
            "normalize": True,
            "temperature": 0.2,
            "log_q": "batch",
        },
        "embeddings": {"combiner": "sqrtn"},
        "train": {
            "global_batch_size": 2048,
            "epochs": args.epochs,
            "optimizer": {"kind": "adam", "lr": 0.002},
        },
        "resources": {"backend": "inline"} if args.ranks == 1 else {"num_ranks": args.ranks},
    }
    (work / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    command = [sys.executable, "-m", "distrain", "train"]
    subprocess.run([*command, work / "job.yaml", "--run-dir", work / "run"], check=True)


@torch.no_grad()
def model_scores(work):
    """Return the score of every item for every customer, `[customers, items]`."""
    model = load_model(work / "run" / "model").model.eval()

    def vectors(side):
        table = Dataset(work / f"{side}s", work / "schema.json", need_label=False)
        with Loader(table, batch_size=4096, lanes=1, shuffle="none") as loader:
            return torch.cat([tower_vectors(model, batch)[name[side]] for batch in loader])

    name = {"customer": "user", "item": "item"}
    return (vectors("customer") @ vectors("item").T).numpy()


def popularity(shop, since):
    """Return the number of customers who bought each item since a day, for every customer."""
    pairs = {(b.customer, item) for b in shop.known if b.day >= since for item in b.items}
    counts = Counter(item for _, item in pairs)
    return np.array([[counts[item] for item in shop.catalogue]] * len(shop.customers))


def favourites(shop):
    """Return the number of baskets in which each customer bought each item.

    A fraction below 1 is added, by which ties are broken by popularity.
    """
    most = len(shop.known)
    counts = Counter((basket.customer, item) for basket in shop.known for item in basket.items)
    own = [[counts[customer, item] for item in shop.catalogue] for customer in shop.customers]
    return np.array(own) + popularity(shop, "") / (1 + most)


def without(lists, others):
    """Return the lists without the values of the other lists."""
    span = 1 + max(lists.values.max(), others.values.max())
    kept = ~np.isin(lists.users * span + lists.values, others.users * span + others.values)
    counts = np.bincount(lists.users[kept], minlength=len(lists.offsets) - 1)
    return type(lists)(lists.values[kept], np.concatenate([[0], np.cumsum(counts)]))


if __name__ == "__main__":
    main()
