"""Real baskets: what a customer bought before, as lists, from a shop's log to batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from distrain.etl import Categorify, ColumnGroup, ListSlice, PrepRequest, Workflow, prepare
from distrain.schema import Schema

KEPT = 20
VALID_ROWS = 1000
THRESHOLD = 3
WORKFLOW = Workflow(
    (
        ColumnGroup(("customer", "country"), (Categorify(),)),
        ColumnGroup(("item", "before"), (Categorify(THRESHOLD, domain="item"),)),
        ColumnGroup(("latest",), (ListSlice(-KEPT), Categorify(THRESHOLD))),
    )
)


@pytest.fixture
def orders(shared_data: Path) -> list[dict[str, Any]]:
    """One row for each order: its first item, and all items of the customer's earlier orders."""
    file = shared_data / "online_retail" / "online_retail_first80pct.csv.gz"
    if not file.is_file():
        pytest.skip("the log of the shop is not among the real data")
    columns = ["InvoiceNo", "StockCode", "Quantity", "CustomerID", "Country"]
    types = {"StockCode": pa.string(), "InvoiceNo": pa.string(), "CustomerID": pa.float64()}
    options = pa_csv.ConvertOptions(include_columns=columns, column_types=types)
    log = pa_csv.read_csv(file, convert_options=options).to_pydict()
    by_order: dict[str, dict[str, Any]] = {}
    for number, code, quantity, customer, country in zip(*log.values(), strict=True):
        if customer is not None and quantity > 0:
            order = by_order.setdefault(
                number, {"customer": int(customer), "country": country, "items": []}
            )
            order["items"].append(code)
    history: dict[int, list[str]] = {}
    for order in by_order.values():
        before = history.setdefault(order["customer"], [])
        order["before"] = list(before) or None  # a first order has no list
        before += order.pop("items")
        order["item"] = before[len(order["before"] or ())]
        order["label"] = int(order["item"] in (order["before"] or ()))
        order["latest"] = order["before"]
    return list(by_order.values())


def ids_of(values: list[Any], threshold: int = 0) -> dict[Any, int]:
    counts = Counter(values)
    kept = sorted((v for v in counts if counts[v] >= threshold), key=lambda v: (-counts[v], v))
    return {value: 3 + i for i, value in enumerate(kept)}


def test_baskets(orders: list[dict[str, Any]], client: Any, tmp_path: Path) -> None:
    from distrain.loader import Dataset, Loader

    table = pa.Table.from_pylist(orders)
    pq.write_table(table, tmp_path / "orders.parquet", row_group_size=500)
    request = PrepRequest(
        (str(tmp_path / "orders.parquet"),),
        out=tmp_path / "out",
        workflow=WORKFLOW,
        valid_rows=VALID_ROWS,
        block_bytes=500_000,
    )
    prepare(request, client)
    train = orders[:-VALID_ROWS]
    items = ids_of([c for o in train for c in [o["item"], *(o["before"] or ())]], THRESHOLD)
    latest = ids_of([c for o in train for c in (o["latest"] or ())[-KEPT:]], THRESHOLD)
    customers = ids_of([o["customer"] for o in train])
    schema = Schema.load(tmp_path / "out" / "schema.pbtxt")
    longest = max(len(order["before"] or ()) for order in orders)
    assert schema["before"].value_count == (0, longest)
    assert schema["latest"].value_count == (0, KEPT)
    assert schema["item"].cardinality == schema["before"].cardinality == 3 + len(items)
    assert schema["item"].domain == schema["before"].domain == "item"
    for split, wanted in (("train", train), ("valid", orders[-VALID_ROWS:])):
        dataset = Dataset(tmp_path / "out" / split)
        cut = {"before": 7}
        with Loader(
            dataset, batch_size=999, lanes=1, shuffle="none", max_list_length=cut
        ) as loader:
            batches = list(loader)
        assert sum(batch.num_rows for batch in batches) == len(wanted)
        rows = iter(wanted)
        for batch in batches:
            these = [next(rows) for _ in range(batch.num_rows)]
            assert batch["item"].tolist() == [items.get(o["item"], 2) for o in these]
            assert batch["customer"].tolist() == [customers.get(o["customer"], 2) for o in these]
            before = batch.lists["before"].padded(7).tolist()
            for order, found in zip(these, before, strict=True):
                codes = [items.get(code, 2) for code in (order["before"] or ())[:7]]
                assert found == codes + [0] * (7 - len(codes))
            ends = batch.lists["latest"].offsets.tolist()
            values = batch.lists["latest"].values.tolist()
            for place, order in enumerate(these):
                codes = [latest.get(code, 2) for code in (order["latest"] or ())[-KEPT:]]
                assert values[ends[place] : ends[place + 1]] == codes
