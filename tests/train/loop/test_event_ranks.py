"""Models of events on gangs of ranks, rows dealt by lengths: one curve, kills, and the audit."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from event_rows import SCHEMA, event_batch
from loaded_scripts import run_script
from ragged_rows import rows_of

from distrain.train.audit.audit import audit_run

SCRIPT = Path(__file__).with_name("resume_ranks.py")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS, BATCH, STEPS = 1_010, 100, 22
JOB = [
    f"train={{global_batch_size: {BATCH}, epochs: 2, max_steps: {STEPS}, log_every_steps: 5}}",
    "train.audit=true",
    "train.optimizer={kind: adam, lr: 0.01}",
    "checkpoint={every_steps: 8, every_s: null, keep: 2}",
    "evaluate.at_end=true",
]
EVENLY = "train.balance_lengths=true"


def table_of(rows: int, seed: int) -> pa.Table:
    batch = event_batch(rows, seed, most=12)
    columns = {name: batch[name].numpy() for name in batch.categorical_names}
    columns |= {"price": batch["price"].numpy(), "clicked": batch.label.numpy()}
    for name, column in batch.lists.items():
        kind = pa.int32() if column.values.dtype == torch.int32 else pa.float32()
        columns[name] = pa.array(rows_of(column), pa.list_(kind))
    return pa.table(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all trainings of a model left their results."""
    root = tmp_path_factory.mktemp("runs")
    for split, rows, seed in (("train", ROWS, 1), ("valid", 300, 2)):
        (root / "data" / split).mkdir(parents=True)
        path = root / "data" / split / "a.parquet"
        pq.write_table(table_of(rows, seed), path, row_group_size=150)
    SCHEMA.save(root / "data" / "schema.json")
    spec = [*JOB, "model={kind: bst, embedding_dim: 4, max_length: 5, hidden: [8]}"]
    ends = {"killed": [{"kill": 13}, {}], "stopped": [{"stop": 13}, {}]}
    spec.append("resources.num_ranks=2")
    told = {
        "2": {"spec": spec, "attempts": [{}]},
        "even": {"spec": [*spec, EVENLY], "attempts": [{}]},
    }
    for name, of_attempts in ends.items():
        attempts = [{"end": end} for end in of_attempts]
        told[name] = {"spec": told["even"]["spec"], "attempts": attempts}
    (root / "stories.json").write_text(json.dumps(told))
    process = run_script(SCRIPT, root, root / "data", root / "stories.json", timeout_s=580.0)
    assert (root / "done").exists(), process.stderr[-5000:]
    return root


def states(folder: Path, name: str, attempt: int, ranks: int = 2):
    files = [folder / f"{name}.{attempt}.{rank}.pt" for rank in range(ranks)]
    return [torch.load(file, weights_only=True) for file in files]


def same(some, others) -> bool:
    return all(
        one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        for one, other in zip(some, others, strict=True)
    )


def test_ranks_with_even_lists_end_with_the_same_bits_however_often_killed(folder):
    quiet = states(folder, "even", 1)
    assert same(states(folder, "killed", 2), quiet)
    assert same(states(folder, "stopped", 2), quiet)
    assert not same(states(folder, "2", 1), quiet)  # sums run in another order


@pytest.mark.parametrize("name", ["2", "even", "killed", "stopped"])
def test_the_audit_proves_that_each_row_was_trained_once_an_epoch(folder, name):
    found = audit_run(folder / name)
    assert found.proved, found
    assert [(one.rows, one.whole) for one in found.epochs] == [(ROWS, True)] * 2
