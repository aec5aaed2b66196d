"""Figures of columns that a scan of some row groups finds."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.scanning import column_moments
from distrain.schema import ColumnSchema, Schema


def test_moments_are_weighted_exact_and_of_some_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (
        ColumnSchema("price", "float64", ("target", "regression")),
        ColumnSchema("counts", "float32", ("weight",)),
        ColumnSchema("user", "int32", ("categorical",), 9),
    )
    price = 1e9 + np.array([0.0, 3.0, 50.0, 70.0, 1.0, 5.0])
    counts = np.array([1, 3, 1, 1, 2, 1], np.float32)
    rows = {"price": price, "counts": counts, "user": np.zeros(6, np.int32)}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=2)
    table = read_footers(str(tmp_path), Schema(columns))
    for sampled, taken in ((6, slice(None)), (3, [0, 1, 4, 5])):
        monkeypatch.setattr("distrain.loader.partition.scanning._SAMPLED_ROWS", sampled)
        repeated = np.repeat(price[taken], counts[taken].astype(int))
        (mean, std) = column_moments(table, [ColumnSchema("price")], "counts")["price"]
        assert mean == pytest.approx(repeated.mean(), abs=1e-6)
        assert std == pytest.approx(repeated.std(), rel=1e-6)
