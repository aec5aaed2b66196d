"""Operators by cuDF on a GPU: the values, types and errors that they have by Arrow."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("distributed", reason="dask is not installed")
pytest.importorskip("hypothesis", reason="hypothesis is not installed")

from device_operators import assert_as_arrow, columns
from distributed import Client, LocalCluster
from hypothesis import given, settings

from distrain.prep import PrepRequest, prepare
from distrain.prep.on_cudf import RunOnCudf
from distrain.workers.local import count_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(count_gpus() == 0, reason="CUDA's driver shows no GPU"),
    pytest.mark.skipif(
        importlib.util.find_spec("pylibcudf") is None, reason="cuDF is not installed"
    ),
]


@settings(max_examples=500, deadline=None)
@given(columns())
def test_values_and_errors_are_those_of_arrow(case: tuple[tuple[Any, ...], pa.Array]) -> None:
    assert_as_arrow(*case, RunOnCudf())


def test_prepared_rows_have_the_same_ids_and_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    words = np.array([f"{number:08x}" for number in range(500)])
    table = {"label": rng.integers(0, 2, 20_000)}
    table |= {f"I{n}": rng.integers(-2, 1000, 20_000) for n in range(1, 14)}
    table |= {f"C{n}": words[rng.zipf(1.5, 20_000) % 500] for n in range(1, 27)}
    pq.write_table(pa.table(table), tmp_path / "raw.parquet")
    prepared = {}
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for device in ("cpu", "cuda"):
            out = tmp_path / device
            prepare(PrepRequest((str(tmp_path / "raw.parquet"),), out, device=device), client)
            prepared[device] = pq.read_table(out / "train")
    assert prepared["cuda"].schema == prepared["cpu"].schema
    for name in prepared["cpu"].column_names:
        here, there = (prepared[device][name].to_numpy() for device in ("cpu", "cuda"))
        if here.dtype == np.int32:
            assert np.array_equal(here, there)
        else:
            np.testing.assert_allclose(there, here, rtol=3e-7, atol=1e-12)
