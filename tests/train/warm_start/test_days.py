"""Yesterday's model on today's ids, from raw rows to runs: prep, train, prep --update, train."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from small_jobs import draw_rows, small_document

import distrain
from distrain.cli.data.prep import command
from distrain.models import load_model
from distrain.schema import CATEGORICAL, Schema
from distrain.spec import parse_spec

INLINE = "resources={backend: inline, num_ranks: 1, device: cpu}"
# In fp32 a step of the second size changes no weight: what a run ends with is what it began with.
STEPS = "train={global_batch_size: 500, max_steps: 3, log_every_steps: 5}"
STILL = "train.optimizer={kind: sgd, lr: 1.0e-30}"


def prep(*arguments):
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def raw_day(path, day):
    """Rows whose categories are numbers that change from day to day, but not all of them."""
    rows = draw_rows(2_000, seed=day)
    for name in CATEGORICAL:
        ids = rows[name].to_pylist()
        moved = [value * 2654435761 % 2**32 + (day if value % 5 == 4 else 0) for value in ids]
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(moved, pa.int64()))
    pq.write_table(rows, path)
    return path


def trained(data, root, *overrides):
    document = {**small_document(data), "data": {"train": str(data / "train")}}
    return distrain.fit(parse_spec(document, [INLINE, STEPS, *overrides]), run_dir=root).summary


def tables_of(root):
    saved = load_model(root / "model").model
    return {name: saved.embeddings.table(name) for name in CATEGORICAL}


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    root = tmp_path_factory.mktemp("days")
    options = ("--freq-threshold", 3, "--num-buckets", 4)
    prep(raw_day(root / "1.parquet", 1), *options, "--out", root / "1")
    told = prep(
        raw_day(root / "2.parquet", 2), "--workflow", root / "1" / "workflow", "--update",
        "--out", root / "2",
    )  # fmt: skip
    assert "new ids" in told
    return root


@pytest.mark.slow
def test_old_ids_keep_their_rows_and_new_ones_have_fresh_rows(days, tmp_path):
    trained(days / "1", tmp_path / "first")
    from_first = f"train.init_from={tmp_path / 'first'}"
    summary = trained(days / "2", tmp_path / "second", STILL, from_first)
    trained(days / "2", tmp_path / "fresh", STILL)
    old, new, fresh = (tables_of(tmp_path / name) for name in ("first", "second", "fresh"))
    new_ids = json.loads((days / "2" / "prep.json").read_text())["new_ids"]
    assert sum(1 for count in new_ids.values() if count) > 20
    sizes = {c.name: c.cardinality for c in Schema.load(days / "1" / "schema.pbtxt").categorical}
    for name in CATEGORICAL:
        size = sizes[name]
        assert torch.equal(new[name][:size], old[name]), name
        assert torch.equal(new[name][size:], fresh[name][size:]), name
        assert len(new[name]) == size + new_ids[name]
        told = summary.warm_start["tables"][name]
        assert told["matched"] == size
        assert told["fresh"] == new_ids[name]
        assert told["dropped"] == 0
    assert summary.warm_start["left"] == []
