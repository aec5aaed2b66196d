"""Writes a table of scikit-learn as parquet, in random order.

    python examples/sklearn_table.py digits --out digits.parquet

docs/models/tasks.md uses the table.
"""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sklearn import datasets

TABLES = ("breast_cancer", "diabetes", "digits", "iris", "wine")


def table_of(name):
    """Return the features and `target` in random order: iris and wine are sorted by target."""
    data = getattr(datasets, f"load_{name}")(as_frame=True).frame
    return pa.Table.from_pandas(data.sample(frac=1, random_state=0), preserve_index=False)


def main():
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=TABLES, help="the table's name")
    parser.add_argument("--out", type=Path, required=True, help="the file")
    args = parser.parse_args()
    pq.write_table(table_of(args.name), args.out)


if __name__ == "__main__":
    main()
