"""Does the job of `distrain prep` with polars' streaming engine.

    python benchmarks/etl_bench/with_polars.py TEXT OUT

First it converts the text to typed parquet. One pass computes the statistics of the numbers, one
pass per column counts its values, and a last pass encodes and writes the rows. The rows keep their
order. Hex ids stay strings.
"""

import sys
from pathlib import Path
from typing import Any

import polars as pl

NUMBERS = [f"I{n}" for n in range(1, 14)]
CATEGORIES = [f"C{n}" for n in range(1, 27)]
FREQ_THRESHOLD = 6
NULL_ID, OOV_ID, FIRST_ID = 1, 2, 3


def logs(name: str) -> pl.Expr:
    """Return log(1 + x) of a number that may be missing."""
    return pl.col(name).fill_null(0).clip(0).cast(pl.Float64).log1p()


def vocabulary(staged: pl.LazyFrame, name: str) -> pl.DataFrame:
    """Return the frequent values of a column, and their ids."""
    counts = staged.select(pl.col(name)).drop_nulls().group_by(name).len()
    kept = counts.filter(pl.col("len") >= FREQ_THRESHOLD)
    ordered = kept.sort("len", name, descending=[True, False]).collect(engine="streaming")
    ids = pl.int_range(FIRST_ID, FIRST_ID + ordered.height, dtype=pl.Int32, eager=True)
    return ordered.select(name, ids.alias("id"))


def encoded(name: str, known: pl.DataFrame) -> pl.Expr:
    """Return the ids of a column."""
    ids: Any = pl.col(name).replace_strict(
        known[name], known["id"], default=OOV_ID, return_dtype=pl.Int32
    )
    return pl.when(pl.col(name).is_null()).then(NULL_ID).otherwise(ids).cast(pl.Int32).alias(name)


def main(text: str, out: Path) -> None:
    """Prepare the rows of one file."""
    out.mkdir()
    types: dict[str, object] = {"label": pl.Int8, **dict.fromkeys(NUMBERS, pl.Int64)}
    types |= dict.fromkeys(CATEGORIES, pl.String)
    rows = pl.scan_csv(
        text, separator="\t", has_header=False, schema=types, quote_char=None, low_memory=True
    )
    staged_file = out / "staged.parquet"
    rows.sink_parquet(staged_file, compression="lz4", statistics=False)
    staged = pl.scan_parquet(staged_file)
    moments = [logs(n).mean().alias(f"{n}_mean") for n in NUMBERS]
    moments += [logs(n).std(ddof=0).alias(f"{n}_std") for n in NUMBERS]
    fitted = staged.select(moments).collect(engine="streaming").row(0, named=True)
    known = {name: vocabulary(staged, name) for name in CATEGORIES}
    features = [pl.col("label").cast(pl.Float32)]
    for name in NUMBERS:
        scaled = (logs(name) - fitted[f"{name}_mean"]) / (fitted[f"{name}_std"] or 1.0)
        features.append(scaled.cast(pl.Float32).alias(name))
    features += [encoded(name, known[name]) for name in CATEGORIES]
    written = out / "part-00000.parquet"
    staged.select(features).sink_parquet(written, compression="lz4", row_group_size=65536)
    staged_file.unlink()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
