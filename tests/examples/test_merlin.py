"""The examples on users and items in their quick form, each a process of its own."""

import csv
import gzip
import json
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from run_examples import run_example

ITEMS, CIRCLES = 120, 6

pytestmark = [pytest.mark.release, pytest.mark.timeout(600)]


def run(script: str, *args: object) -> dict[str, Any]:
    """The figures in the example's last line."""
    figures: dict[str, Any] = json.loads(run_example(script, *args).splitlines()[-1])
    return figures


@pytest.mark.parametrize(
    "schema",
    [None, "models__entertainment_movielens_1m.pbtxt"],
)
def test_the_introductions_models_learn(
    tmp_path: Path, shared_data: Path, schema: str | None
) -> None:
    more = () if schema is None else ("--schema", shared_data / "merlin_schemas" / schema)
    figures = run("merlin_intro.py", "--quick", "--work", tmp_path, *more)
    best = figures.pop("best_auc")
    assert figures.pop("mean_place") < 0.5  # chance gives 0.5
    assert figures["mlp"] == figures["mlp by hand"]  # one model, written in two ways
    # NCF sees nothing but the two ids.
    assert set(figures) == {"mlp", "mlp by hand", "two mlps", "dlrm", "ncf", "two-tower"}
    for name, auc in figures.items():
        assert 0.6 < auc < best + 0.02, name


def test_the_labs_models_learn_in_two_epochs(tmp_path: Path) -> None:
    figures = run("merlin_extend.py", "--quick", "--work", tmp_path)
    for name in ("dlrm_with_cross", "crosses_instead"):
        assert len(figures[name]) == 2
        assert 0.65 < figures[name][-1] < figures["best_auc"] + 0.02


def write_log(path: Path) -> None:
    """A log in the shop's form: customers buy from their circle's items, each item once."""
    draw = random.Random(3)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            [
                "InvoiceNo",
                "StockCode",
                "Description",
                "Quantity",
                "InvoiceDate",
                "UnitPrice",
                "CustomerID",
                "Country",
            ]
        )
        baskets = []
        for customer in range(300):
            own = [item for item in range(ITEMS) if item % CIRCLES == customer % CIRCLES]
            draw.shuffle(own)
            days = [*sorted(draw.sample(range(60), 3)), draw.randrange(60, 90)]
            baskets += [(day, customer, own[4 * n : 4 * n + 4]) for n, day in enumerate(days)]
        for number, (day, customer, items) in enumerate(sorted(baskets)):
            when = f"{date(2011, 1, 1) + timedelta(days=day)}T09:00:00"
            for item in items:
                what = [f"{10_000 + item}A", f"ITEM OF CIRCLE {'ABCDEF'[item % CIRCLES] * 3}"]
                rows.writerow([number, *what, 2, when, 1.5, customer, "France"])
        rows.writerow(["C1", "10001A", "RETURNED", -2, "2011-01-05T09:00:00", 1.5, 1, "France"])
        rows.writerow(["9999", "POST", "POSTAGE", 1, "2011-01-05T09:00:00", 1.5, 1, "France"])


def test_a_shops_circles_are_found(tmp_path: Path) -> None:
    write_log(tmp_path / "log.csv.gz")
    args = ("--split", "2011-03-02", "--epochs", 60, "--work", tmp_path)
    figures = run("online_retail.py", tmp_path / "log.csv.gz", *args)
    # 8 of the circle's 20 items are left, of which 4 are bought; nobody buys an item again.
    assert figures["own favourites, all items"] < 0.2
    assert figures["popularity, new items"] < 0.2
    assert figures["two-tower, new items"] > 0.8


def test_a_real_shops_customers_are_told_better_than_by_popularity(
    tmp_path: Path, shared_data: Path
) -> None:
    log = shared_data / "online_retail" / "online_retail_first80pct.csv.gz"
    figures = run("online_retail.py", log, "--work", tmp_path)
    for protocol in ("all items", "new items"):
        assert figures[f"two-tower, {protocol}"] > 1.2 * figures[f"popularity, {protocol}"]
        assert figures[f"two-tower, {protocol}"] > figures[f"popularity, last 30 days, {protocol}"]
