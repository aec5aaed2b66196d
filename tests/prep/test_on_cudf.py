"""Operators by cuDF without cuDF: one test of conformance, and a worker that has no cuDF."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cudf_operators_on_cpu import pylibcudf
from device_operators import assert_as_arrow, columns
from hypothesis import given, settings

from distrain.errors import ClusterError
from distrain.prep import PrepRequest, prepare
from distrain.prep.on_cudf import RunOnCudf, check_operators
from distrain.prep.operators import OPERATORS
from distrain.prep.workflow import criteo_workflow


@settings(max_examples=20, deadline=None)
@given(columns())
def test_values_and_errors_are_those_of_arrow(case: tuple[tuple[Any, ...], pa.Array]) -> None:
    assert_as_arrow(*case, RunOnCudf(pylibcudf))


def test_a_worker_without_cudf_ends_the_run_before_it_begins(
    client: Any, tmp_path: Path, make_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(hasattr(operator, "on_device") for operator in OPERATORS.values())
    check_operators(criteo_workflow())
    (tmp_path / "raw.tsv").write_bytes(b"\n".join(make_lines(30)))
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    with pytest.raises(ClusterError, match="pylibcudf") as caught:
        prepare(PrepRequest((str(tmp_path / "raw.tsv"),), tmp_path / "out", device="cuda"), client)
    assert caught.value.hint
    assert not (tmp_path / "out").exists()
