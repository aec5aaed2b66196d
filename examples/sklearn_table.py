"""A table that scikit-learn ships, as parquet, in an order of no meaning.

    python examples/sklearn_table.py digits --out digits.parquet

docs/models/tasks.md says what is made of it.
"""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sklearn import datasets

TABLES = ("breast_cancer", "diabetes", "digits", "iris", "wine")


def table_of(name):
    """Features by their names, and `target`; iris and wine are sorted by it, so rows are drawn."""
    data = getattr(datasets, f"load_{name}")(as_frame=True).frame
    return pa.Table.from_pandas(data.sample(frac=1, random_state=0), preserve_index=False)


def main():
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=TABLES, help="which one")
    parser.add_argument("--out", type=Path, required=True, help="the file")
    args = parser.parse_args()
    pq.write_table(table_of(args.name), args.out)


if __name__ == "__main__":
    main()
