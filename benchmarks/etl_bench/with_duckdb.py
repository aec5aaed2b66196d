"""Does the job of `distrain prep` with DuckDB on two threads.

    python benchmarks/etl_bench/with_duckdb.py TEXT OUT

The rows may change their order, which takes less memory and time than keeping it.
"""

import sys
from pathlib import Path

import duckdb

NUMBERS = [f"I{n}" for n in range(1, 14)]
CATEGORIES = [f"C{n}" for n in range(1, 27)]
FREQ_THRESHOLD = 6


def log1p(name: str) -> str:
    """Return SQL for log(1 + x) of a number that may be missing."""
    return f"ln(1 + greatest(coalesce({name}, 0), 0)::DOUBLE)"


def main(text: str, out: Path) -> None:
    """Prepare the rows of one file."""
    out.mkdir()
    db = duckdb.connect(str(out / "work.duckdb"), config={"threads": 2})
    db.execute("SET preserve_insertion_order = false")
    types = {"label": "TINYINT", **dict.fromkeys(NUMBERS, "BIGINT")}
    types |= dict.fromkeys(CATEGORIES, "VARCHAR")
    columns = ", ".join(f"'{name}': '{dtype}'" for name, dtype in types.items())
    db.execute(
        f"CREATE TABLE staged AS SELECT * FROM read_csv('{text}', delim='\t', header=false, "
        f"quote='', escape='', nullstr='', auto_detect=false, columns={{{columns}}})"
    )
    moments = ", ".join(f"avg({log1p(n)}), stddev_pop({log1p(n)})" for n in NUMBERS)
    found = db.execute(f"SELECT {moments} FROM staged").fetchone()
    assert found is not None
    for name in CATEGORIES:
        db.execute(
            f"CREATE TABLE v{name} AS SELECT {name} AS value, "
            f"(2 + row_number() OVER (ORDER BY count(*) DESC, {name}))::INTEGER AS id "
            f"FROM staged WHERE {name} IS NOT NULL GROUP BY {name} "
            f"HAVING count(*) >= {FREQ_THRESHOLD}"
        )
    features = ["label::FLOAT AS label"]
    for place, name in enumerate(NUMBERS):
        mean, std = found[2 * place], found[2 * place + 1] or 1.0
        features.append(f"(({log1p(name)} - {mean!r}) / {std!r})::FLOAT AS {name}")
    features += [
        f"CASE WHEN s.{name} IS NULL THEN 1 ELSE coalesce(v{name}.id, 2) END AS {name}"
        for name in CATEGORIES
    ]
    joins = " ".join(f"LEFT JOIN v{name} ON s.{name} = v{name}.value" for name in CATEGORIES)
    db.execute(
        f"COPY (SELECT {', '.join(features)} FROM staged s {joins}) TO '{out}/part-00000.parquet' "
        "(FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 65536)"
    )
    db.close()
    (out / "work.duckdb").unlink()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
