"""Turns UCI's Online Retail log into a table of items and days, and whether each was sold.

    python examples/online_retail_items.py online_retail.csv.gz --out items.parquet

docs/examples.md uses the table.
"""

import argparse
from datetime import date
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from online_retail_data import read_log


def table_of(baskets):
    """Return one row per item and business day after the item's first sale, ordered by day."""
    known, columns = set(), {"item": [], "day": [], "sold": []}
    for day, of_day in groupby(baskets, key=lambda basket: basket.day):
        sold = {item for basket in of_day for item in basket.items}
        columns["item"] += sorted(known)
        columns["day"] += [date.fromisoformat(day)] * len(known)
        columns["sold"] += [item in sold for item in sorted(known)]
        known |= sold
    return pa.table(columns)


def main():
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, help="online_retail.csv.gz")
    parser.add_argument("--out", type=Path, default=Path("items.parquet"), help="the file")
    args = parser.parse_args()
    baskets, _ = read_log(args.log)
    table = table_of(baskets)
    pq.write_table(table, args.out, row_group_size=8192)
    print(f"{table.num_rows:,} rows in {args.out}")


if __name__ == "__main__":
    main()
