"""Turns UCI's Online Retail log into a table of baskets, their worth, and the next purchases.

    python examples/online_retail_baskets.py online_retail.csv.gz --out baskets.parquet

docs/examples.md uses the table.
"""

import argparse
import math
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from online_retail_data import read_log

DAYS = 28
"""Days after a basket in which the next purchase counts."""


def table_of(baskets):
    """Return one row per basket, ordered by day, with its customer's earlier and later purchases.

    Money is the logarithm of pounds, since a few baskets are worth far more than the others. The
    last `DAYS` days have no rows: their next purchases are unknown.
    """
    days = [date.fromisoformat(basket.day) for basket in baskets]
    worth = [sum(basket.pounds) for basket in baskets]
    places = {}
    for place, basket in enumerate(baskets):
        places.setdefault(basket.customer, []).append(place)
    rows = [{}] * len(baskets)
    for own in places.values():
        for number, place in enumerate(own):
            earlier = own[:number]
            near = [p for p in own[number + 1 :] if (days[p] - days[place]).days <= DAYS]
            rows[place] = {
                "customer": baskets[place].customer,
                "country": baskets[place].country,
                "day": days[place],
                "items": baskets[place].items,
                "baskets_before": number,
                "days_since": (days[place] - days[own[number - 1]]).days if number else None,
                "mean_before": math.log1p(sum(worth[p] for p in earlier) / number)
                if number
                else None,
                "worth": math.log1p(worth[place]),
                "bought_again": bool(near),
                "spent_next": math.log1p(sum(worth[p] for p in near)),
            }
    kept = [row for row in rows if (days[-1] - row["day"]).days >= DAYS]
    return pa.Table.from_pylist(kept)


def main():
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, help="online_retail.csv.gz")
    parser.add_argument("--out", type=Path, default=Path("baskets.parquet"), help="the file")
    args = parser.parse_args()
    baskets, _ = read_log(args.log)
    table = table_of(baskets)
    pq.write_table(table, args.out, row_group_size=1024)
    print(f"{table.num_rows:,} baskets in {args.out}")


if __name__ == "__main__":
    main()
