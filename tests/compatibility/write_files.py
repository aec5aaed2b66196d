"""Writes what one version of distrain leaves, for `test_earlier_files.py` to read with later ones.

    git worktree add /tmp/old v0.2.0
    cd /tmp/new-folder
    PYTHONPATH=/tmp/old python THIS_FILE
    XZ_OPT=-9e tar cJf CHECKOUT/tests/compatibility/0.2.0.tar.xz --sort=name --owner=0 --group=0 *

Only commands are used, which versions share. The environment needs the extra `service`.
"""

import csv
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

FEATURES = """\
version: 1
target: {column: stars, at_least: 4}
split: {by: time, column: bought_at, from: 2024-05-01}
columns:
  shop: {kind: categorical, freq_threshold: 5}
  item: {kind: categorical}
  seen: {kind: categorical, separator: "|", list_slice: -4, domain: other}
  hour: {from: bought_at, kind: categorical, as: hour}
  price: {kind: continuous, fill: 0, log: true, normalize: true}
"""
JOB = """\
version: 1
name: earlier
tags: {team: ads}
data: {train: orders/train, valid: orders/valid, shuffle: full}
model: {kind: deepfm, embedding_dim: 4, hidden: [8]}
train:
  global_batch_size: 40
  epochs: 20
  seed: 7
  log_every_steps: 40
  optimizer: {kind: adagrad, lr: 0.02}
checkpoint: {every_steps: 40, keep: 1}
resources: {backend: inline, num_ranks: 1, device: cpu}
"""
COMMAND = [sys.executable, "-m", "distrain"]


def main() -> None:
    Path("features.yaml").write_text(FEATURES)
    Path("job.yaml").write_text(JOB)
    write_rows(Path("orders.csv"), 400, seed=1)
    write_rows(Path("later.csv"), 50, seed=2)
    distrain("prep", "orders.csv", "--config", "features.yaml", "--out", "orders")
    distrain("prep", "later.csv", "--workflow", "orders/workflow", "--out", "later")
    distrain("pack", "orders/train", "--out", "packed")
    distrain("train", "job.yaml", "--run-dir", "whole")
    distrain("train", "job.yaml", "--run-dir", "half", "--set", "train.epochs=10")
    distrain("predict", "whole", "orders/valid", "--out", "scores")
    keep_a_service()
    for path in Path().rglob("*"):
        if path.name in ("report.html", "curves.png") or path.suffix == ".lock":
            path.unlink()


def write_rows(path: Path, rows: int, seed: int) -> None:
    """Orders, whose stars depend on shop, item and price."""
    rng = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("stars", "shop", "item", "seen", "price", "bought_at"))
        for row in range(rows):
            shop, item = rng.randrange(8), rng.randrange(20)
            price = round(rng.expovariate(0.05), 2)
            liked = (shop + item) % 3 == 0 or price < 5
            stars = rng.randint(4, 5) if liked else rng.randint(1, 4)
            seen = "|".join(f"item-{rng.randrange(20)}" for _ in range(rng.randrange(6)))
            day, hour = 1 + row * 20 // rows, rng.randrange(24)
            month = 5 if day > 16 else 4
            writer.writerow((stars, f"shop-{shop}", f"item-{item}", seen, price or "",
                             f"2024-{month:02}-{day:02} {hour:02}:15:00"))  # fmt: skip


def keep_a_service() -> None:
    """Its database, with a job that succeeded, one that waits, and a project of its own."""
    serve = ["serve", "--data-dir", "served"]
    words = [*serve, "--json", "--port", "0", "--stop-clusters"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        os.environ |= {"DISTRAIN_SERVER": told["url"], "DISTRAIN_TOKEN": told["token"]}
        short = ("--set", "resources.backend=dask", "--set", "train.epochs=2")
        distrain("submit", "job.yaml", *short, "--wait")
        distrain("submit", "job.yaml", *short, "--set", "resources.num_ranks=12", "--tag", "a=b")
        process.terminate()
    distrain("serve", "project", "set", "search", "--max-ranks", "4", "--data-dir", "served")
    distrain("serve", "backup", "service.db", "--data-dir", "served")
    shutil.rmtree("served")


def distrain(*words: str) -> None:
    subprocess.run([*COMMAND, *words], check=True)


if __name__ == "__main__":
    main()
