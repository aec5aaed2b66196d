"""Operators by cuDF without cuDF: what is ours of it, on the host; and who may ask for a GPU."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cudf_operators_on_cpu import pylibcudf
from device_operators import assert_as_arrow, columns
from hypothesis import given, settings

from distrain.errors import ClusterError, InputError
from distrain.etl import (
    Categorify,
    Clip,
    ColumnGroup,
    FillMissing,
    LogOp,
    Normalize,
    PrepRequest,
    Workflow,
    criteo_workflow,
    prepare,
)
from distrain.etl.on_cudf import RunOnCudf, check_operators, gpu_problem
from distrain.etl.operators import OPERATORS
from distrain.version import how_to_install


@settings(max_examples=20, deadline=None)
@given(columns())
def test_values_and_errors_are_those_of_arrow(case: tuple[tuple[Any, ...], pa.Array]) -> None:
    assert_as_arrow(*case, RunOnCudf(pylibcudf))


def test_each_operator_has_a_form() -> None:
    assert all(hasattr(operator, "on_device") for operator in OPERATORS.values())
    check_operators(criteo_workflow())


def test_an_operator_without_a_form_is_refused_by_its_name() -> None:
    class Rounded:
        kind: ClassVar[str] = "Rounded"

    workflow = Workflow((ColumnGroup(("I1", "I2"), (Rounded(),)),))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Rounded cannot be run on a GPU") as caught:
        check_operators(workflow)
    assert caught.value.where == {"columns": "I1, I2"}


def test_what_a_machine_lacks_is_said() -> None:
    def missing(_: str) -> Any:
        raise ModuleNotFoundError("No module named 'pylibcudf'")

    class NoGpu:
        @staticmethod
        def from_arrow(_: pa.Array) -> Any:
            raise RuntimeError("CUDA error: no CUDA-capable device is detected\nat line 3")

    assert gpu_problem(lambda _: pylibcudf) is None
    assert "the package pylibcudf cannot be imported" in str(gpu_problem(missing))
    found = gpu_problem(lambda _: SimpleNamespace(Column=NoGpu))
    assert found is not None
    assert found.endswith("(CUDA error: no CUDA-capable device is detected)")


@pytest.fixture
def lines(tmp_path: Path, make_lines: Any) -> Path:
    path = tmp_path / "raw.tsv"
    path.write_bytes(b"".join(line + b"\n" for line in make_lines(300)))
    return path


def test_a_worker_without_cudf_ends_the_run_before_it_begins(
    client: Any, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    with pytest.raises(ClusterError, match="the package pylibcudf cannot be imported") as caught:
        prepare(PrepRequest((str(lines),), tmp_path / "out", device="cuda"), client)
    assert how_to_install("gpu") in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


def test_prepared_rows_have_the_same_ids_and_numbers(
    client: Any, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", pylibcudf)
    numbers = (FillMissing(0), Clip(min=0), LogOp(), Normalize())
    workflow = Workflow((ColumnGroup(("I1", "I2"), numbers), ColumnGroup(("C1",), (Categorify(),))))
    tables = {}
    for device in ("cpu", "cuda"):
        out = tmp_path / device
        prepare(PrepRequest((str(lines),), out, workflow=workflow, device=device), client)
        tables[device] = pq.read_table(out / "train")
    assert tables["cuda"].schema == tables["cpu"].schema
    for name in tables["cpu"].column_names:
        here, there = (tables[device][name].to_numpy() for device in ("cpu", "cuda"))
        if here.dtype == np.int32:
            assert np.array_equal(here, there)
        else:
            np.testing.assert_allclose(there, here, rtol=3e-7, atol=1e-12)


def test_a_device_of_another_name_is_refused() -> None:
    with pytest.raises(InputError, match="device 'gpu' is neither cpu nor cuda"):
        PrepRequest(("a.tsv",), Path("out"), device="gpu")
