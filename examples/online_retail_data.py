"""Turns UCI's Online Retail log into rows: an item, and its buyer's earlier purchases."""

import csv
import gzip
import re
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.metrics import ItemLists
from distrain.prep import Categorify, ColumnGroup, Workflow, output_schema
from distrain.schema import Schema, Tags

MOST_ITEMS = 200
"""The number of a customer's latest earlier items that the model uses."""

# Current and earlier items share one vocabulary, and so one embedding table.
WORKFLOW = Workflow(
    (
        ColumnGroup(("customer", "country"), (Categorify(),)),
        ColumnGroup(("item", "history", "last_basket"), (Categorify(domain="item"),)),
        ColumnGroup(("words",), (Categorify(),)),
    )
)
LISTS = ("history", "last_basket", "words")
TAGS = {
    "customer": (Tags.USER, Tags.USER_ID),
    "country": (Tags.USER,),
    "history": (Tags.USER,),
    "last_basket": (Tags.USER,),
    "item": (Tags.ITEM, Tags.ITEM_ID),
    "words": (Tags.ITEM,),
}

RAW = pa.schema({c: pa.list_(pa.string()) if c in LISTS else pa.string() for c in TAGS})


@dataclass(frozen=True)
class Basket:
    """An invoice.

    Attributes:
        customer: The buyer's id.
        country: The buyer's country.
        day: The date, such as "2011-04-15".
        items: Distinct stock codes.
        pounds: The worth of each line: quantity times price.
    """

    customer: str
    country: str
    day: str
    items: list[str] = field(default_factory=list)
    pounds: list[float] = field(default_factory=list)


def read_log(path):
    """Return all baskets of known customers by day, and the words of each item's description.

    An item's code begins with five digits; postage, fees, manual entries, cancellations and
    returns are skipped.
    """
    baskets, words = {}, {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            item = row["StockCode"]
            if not row["CustomerID"] or int(row["Quantity"]) <= 0 or not re.match(r"\d{5}", item):
                continue
            new = Basket(row["CustomerID"], row["Country"], row["InvoiceDate"][:10])
            basket = baskets.setdefault(row["InvoiceNo"], new)
            basket.pounds.append(int(row["Quantity"]) * float(row["UnitPrice"]))
            if item not in basket.items:
                basket.items.append(item)
            words.setdefault(item, re.findall(r"[A-Z]{2,}", row["Description"].upper()))
    return sorted(baskets.values(), key=lambda basket: basket.day), words


class Shop:
    """Purchases before a day, and those from that day on.

    Args:
        log: The file.
        split: The day, such as "2011-04-16".
        end: The day after the last one; later days are ignored. `None` uses the whole log.

    Attributes:
        known: The baskets before `split`.
        catalogue: All items in `known`, which can be recommended, in the order of the columns of
            scores.
        customers: Customers who bought both before and from `split` on, in the order of the rows of
            scores.
        relevant: Their purchases from `split` on, as indices in the catalogue; an item never bought
            before has an index beyond it, which no model predicts.
        bought: Their purchases before `split`, as indices in the catalogue.
    """

    def __init__(self, log, split, end=None):
        baskets, self._words = read_log(log)
        baskets = [basket for basket in baskets if end is None or basket.day < end]
        self.known = [basket for basket in baskets if basket.day < split]
        counts = Counter(item for basket in self.known for item in basket.items)
        self.catalogue = sorted(counts, key=lambda item: (-counts[item], item))
        self._rows, seen = _rows(self.known, self._words)
        after = {}
        for basket in baskets[len(self.known) :]:
            if basket.customer in seen:
                after.setdefault(basket.customer, set()).update(basket.items)
        self.customers = list(after)
        self._seen = [seen[customer] for customer in self.customers]
        unknown = sorted({item for items in after.values() for item in items} - set(counts))
        self.places = {item: place for place, item in enumerate([*self.catalogue, *unknown])}
        self.relevant = self.lists_of(after.values())
        self.bought = self.lists_of(seen["history"] for seen in self._seen)

    def lists_of(self, sets):
        """Convert sets of stock codes to lists of indices."""
        lists = [[self.places[item] for item in items] for items in sets]
        values = np.array([place for places in lists for place in places], np.int64)
        return ItemLists(values, np.cumsum([0, *map(len, lists)]))

    def write(self, folder, since=""):
        """Write training rows, one row per customer, one per item, and the schema.

        Args:
            folder: The output folder.
            since: The first day of training rows; older baskets only occur in histories.
        """
        anybody, anything = _cut(self._seen[0]), {"item": self.catalogue[0], "words": []}
        tables = {
            "train": [row for day, row in self._rows if day >= since],
            "customers": [_cut(seen) | anything for seen in self._seen],
            "items": [anybody | {"item": i, "words": self._words[i]} for i in self.catalogue],
        }
        tables = {name: pa.Table.from_pylist(rows, schema=RAW) for name, rows in tables.items()}
        workflow = WORKFLOW.fit(tables.values())
        for name, table in tables.items():
            ids = workflow.transform(table)
            rows = ids.append_column("label", pa.array(np.ones(len(ids), np.float32)))
            (folder / name).mkdir(parents=True)
            pq.write_table(rows, folder / name / "rows.parquet", row_group_size=8192)
        lengths = dict.fromkeys(LISTS, (0, 0))
        columns = output_schema(workflow, workflow.cardinalities, list_lengths=lengths)
        tagged = (replace(c, tags=(*c.tags, *TAGS.get(c.name, ()))) for c in columns)
        Schema(tuple(tagged)).save(folder / "schema.json")


def _rows(baskets, words):
    """Return (day, row) for each item of each basket, and each customer's state after the last one.

    A row has its customer's earlier purchases: each item once, at its latest position.
    """
    rows, seen = [], {}
    for basket in baskets:
        who = {"customer": basket.customer, "country": basket.country}
        before = seen.get(basket.customer, {"history": [], "last_basket": []}) | who
        this = _cut(before)
        rows += [(basket.day, this | {"item": i, "words": words[i]}) for i in basket.items]
        kept = [item for item in before["history"] if item not in basket.items]
        seen[basket.customer] = who | {"history": kept + basket.items, "last_basket": basket.items}
    return rows, seen


def _cut(row):
    return row | {"history": row["history"][-MOST_ITEMS:]}
