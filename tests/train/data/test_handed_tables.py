"""Footers are read once: the ranks get what the command found."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from small_jobs import make_spec, write_prepared

from distrain.jobs.assignment import World
from distrain.jobs.run_paths import RunPaths
from distrain.launch.inline import run_inline
from distrain.runs.run_file import begin_run
from distrain.train.data.inputs import check_inputs
from distrain.train.data.job_tables import read_tables, write_tables
from distrain.train.data.loaders import job_loader

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def handed(prepared, tmp_path):
    """A file of the tables of a spec, and the spec."""
    spec = make_spec(prepared, "resources={backend: inline, num_ranks: 1}", "train.max_steps=3")
    paths = RunPaths(tmp_path)
    begin_run(paths, spec, "job")
    write_tables(check_inputs(spec), spec, paths.tables)
    return paths.tables, spec


@pytest.fixture
def no_footers(monkeypatch):
    """As if the storage were away."""
    monkeypatch.setattr(
        "distrain.train.data.inputs.read_footers",
        Mock(side_effect=AssertionError("footers were read")),
    )


def test_what_was_handed_on_is_what_footers_say(handed, no_footers, monkeypatch):
    path, spec = handed
    found = check_inputs(spec, 0.0, path)
    monkeypatch.undo()
    assert found == check_inputs(spec)
    assert [g.version for g in found.train.row_groups] == [
        g.version for g in check_inputs(spec).train.row_groups
    ]


def test_the_table_with_all_negatives_is_handed_on(prepared, tmp_path):
    spec = make_spec(prepared, "data.negatives=0.5")
    path = RunPaths(tmp_path).tables
    write_tables(check_inputs(spec), spec, path)
    found = read_tables(path, spec, check_inputs(spec).schema)
    assert found == check_inputs(spec)
    assert found.train.num_rows < found.unthinned.num_rows == 3 * 3_500


def test_an_attempt_reads_no_footers(handed, no_footers):
    path, spec = handed
    view = run_inline(spec, path.parent, "job", lambda _: None)
    assert view.reason is None, view.message


@pytest.mark.parametrize(
    "change", ["data.fill_null_id=0", "data.hive=true", "data.valid=null", "evaluate.at_end=false"]
)
def test_only_what_does_not_concern_footers_may_differ(handed, no_footers, change, prepared):
    path, _ = handed
    spec = make_spec(prepared, change)
    if change.startswith("data"):
        with pytest.raises(AssertionError, match="footers were read"):
            check_inputs(spec, 0.0, path)
    else:
        assert check_inputs(spec, 0.0, path).valid is not None


@pytest.mark.parametrize("content", [None, b"", b"nonsense" * 100])
def test_without_the_file_or_with_a_broken_one_footers_are_read(handed, content):
    path, spec = handed
    found = check_inputs(spec, 0.0, path)
    path.unlink() if content is None else path.write_bytes(content)
    assert check_inputs(spec, 0.0, path) == found


@pytest.mark.slow
def test_whatever_byte_is_damaged_all_tables_are_read_or_none(handed):
    path, spec = handed
    inputs = check_inputs(spec, 0.0, path)
    whole = path.read_bytes()
    outcomes = set()
    for place in range(0, len(whole), 9):
        for mask in (0x01, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            found = read_tables(path, spec, inputs.schema)
            assert found in (None, inputs), place
            outcomes.add(found is None)
    assert outcomes == {True, False}


def test_relative_and_absolute_paths_are_the_same_data(handed, prepared, monkeypatch, no_footers):
    path, _ = handed
    monkeypatch.chdir(prepared)
    spec = make_spec(Path("."), "resources={backend: inline, num_ranks: 1}")
    assert check_inputs(spec, 0.0, path).train.num_rows == 3 * 3_500


@pytest.mark.parametrize(
    ("decode_threads", "device", "ranks_per_node", "threads"),
    [("auto", "cpu", 1, 1), ("auto", "cuda", 1, 10), ("auto", "cuda", 4, 6), (3, "cuda", 1, 3)],
)
def test_a_rank_on_a_gpu_decodes_with_its_share_of_the_cores(
    decode_threads, device, ranks_per_node, threads, tmp_path, monkeypatch
):
    spec = make_spec(write_prepared(tmp_path / "own"), f"data.decode_threads={decode_threads}")
    inputs = check_inputs(spec)
    monkeypatch.setattr(os, "cpu_count", lambda: 32)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(32))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    world = World(0, ranks_per_node, ranks_per_node)
    device = torch.device(device, 0)
    loader = job_loader(spec, inputs.schema, inputs.train, world, device, shuffle="chunk")
    assert loader.options.decode_threads == threads
