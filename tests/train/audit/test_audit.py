"""The proof that a run trained every row once: it holds, and it fails where it should."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from small_jobs import make_spec, write_prepared
from wording import Wording

from distrain.cli.main import cli
from distrain.errors import DataError
from distrain.jobs.run_paths import RunPaths
from distrain.launch.inline import run_inline
from distrain.loader.batch import Batch
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS
from distrain.train.audit.audit import audit_run, read_audit, row_hashes

JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "train={global_batch_size: 700, epochs: 2, max_steps: 19, audit: true}",
    "evaluate.at_end=false",
    "checkpoint={at_end: false, every_s: null}",
)
HEADER, STEP_HEAD = 16, 24  # bytes
STEP = STEP_HEAD + 8 * 700


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prepared = write_prepared(tmp_path_factory.mktemp("prepared"))
    root = tmp_path_factory.mktemp("trained") / "run"
    spec = make_spec(prepared, *JOB)
    view = run_inline(spec, root, "job", lambda _: None)
    assert view.message is None
    (root / "spec.yaml").write_text(json.dumps(spec.model_dump(mode="json")))
    named = {"job_id": "job", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
    (root / "run.json").write_text(json.dumps(named))
    return root


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def file_of(run: Path, attempt: int = 1) -> Path:
    return RunPaths(run).audit(rank=0, attempt=attempt)


def tamper(run: Path, step: int, row: int, value: bytes) -> None:
    path = file_of(run)
    content = bytearray(path.read_bytes())
    start = HEADER + step * STEP + STEP_HEAD + 8 * row
    content[start : start + 8] = value
    path.write_bytes(content)


def hash_at(run: Path, step: int, row: int) -> bytes:
    start = HEADER + step * STEP + STEP_HEAD + 8 * row
    return file_of(run).read_bytes()[start : start + 8]


def cut(run: Path, num_bytes: int) -> None:
    path = file_of(run)
    path.write_bytes(path.read_bytes()[:num_bytes])


def problems(run: Path) -> list[tuple[str, ...]]:
    found = audit_run(run)
    assert found.proved == (not any(epoch.problems for epoch in found.epochs))
    return [epoch.problems for epoch in found.epochs]


def test_a_whole_run_is_proved(run: Path) -> None:
    found = audit_run(run)
    assert found.proved
    assert (found.attempts, found.table_rows) == (1, 10_500)
    assert (found.steps, found.num_steps) == (19, 19)
    assert [(e.rows, e.whole) for e in found.epochs] == [(10_500, True), (2_800, False)]
    first_step, steps = read_audit(file_of(run))
    told = [(rows.epoch, rows.step, len(rows.hashes)) for rows in steps]
    assert first_step == 0
    assert told == [(step // 15, step, 700) for step in range(19)]


def hash_of_named(text: str) -> bytes:
    """The hash of the row of a parquet file that a problem names."""
    file, group, row = text.split(": ")[1].split(", ")[:3]
    table = pq.ParquetFile(file).read_row_group(int(group.split()[-1]))
    values = table.slice(int(row.split()[-1]), 1).to_pydict()
    ids = torch.tensor([[values[name][0] for name in CATEGORICAL]], dtype=torch.int32)
    numbers = torch.tensor([[values[name][0] for name in CONTINUOUS]], dtype=torch.float32)
    label = torch.tensor(values["label"], dtype=torch.float32)
    batch = Batch(ids, numbers, label, tuple(CATEGORICAL), tuple(CONTINUOUS))
    return row_hashes(batch).numpy().tobytes()


def test_the_rows_that_are_named_are_the_ones(run: Path) -> None:
    lost, twice = hash_at(run, 2, 5), hash_at(run, 9, 1)
    tamper(run, 2, 5, twice)
    assert [hash_of_named(text) for text in problems(run)[0]] == [lost, twice]


def test_a_row_of_the_partial_epoch_may_be_missing_but_not_come_twice(run: Path) -> None:
    tamper(run, 17, 0, hash_at(run, 16, 0))
    first, second = problems(run)
    assert first == ()
    (twice,) = second
    assert twice.endswith("in step 17, 18")


def test_a_row_that_is_not_the_tables_is_found(run: Path) -> None:
    tamper(run, 16, 3, b"whatever")
    (problem,) = problems(run)[1]
    assert problem == "trained, but no row of the table, in step 17"


def test_steps_that_are_missing_are_found(run: Path) -> None:
    content = file_of(run).read_bytes()
    start = HEADER + 4 * STEP
    file_of(run).write_bytes(content[:start] + content[start + STEP :])
    first = problems(run)[0]
    assert first[0] == "step 5 has 0 rows, not 700"
    assert sum(text.startswith("never trained") for text in first) == 10
    assert first[-1] == "690 more rows were never trained"


def test_a_step_that_was_not_written_whole_does_not_count(run: Path) -> None:
    cut(run, HEADER + 12 * STEP + 100)
    found = audit_run(run)
    assert found.proved
    assert (found.steps, found.num_steps) == (12, 19)
    assert [(e.rows, e.whole) for e in found.epochs] == [(8_400, False)]


def test_a_later_attempt_replaces_what_earlier_ones_did_from_its_start_on(run: Path) -> None:
    content = file_of(run).read_bytes()
    second = file_of(run, attempt=2)
    second.parent.mkdir()
    head = content[:8] + np.array([10], "<i8").tobytes()
    second.write_bytes(head + content[HEADER + 10 * STEP :])
    cut(run, HEADER + 13 * STEP)
    assert audit_run(run).attempts == 2
    assert problems(run) == [(), ()]
    # It began later than the first had got: steps 11 and 12 were trained by nobody.
    cut(run, HEADER + 8 * STEP)
    assert problems(run)[0][:2] == ("step 9 has 0 rows, not 700", "step 10 has 0 rows, not 700")


def test_a_run_without_hashes_and_files_of_another_kind_are_refused(
    run: Path, wording: Wording
) -> None:
    file_of(run).write_bytes(b"something else")
    wording.refused(DataError, lambda: audit_run(run))
    shutil.rmtree(RunPaths(run).audits)
    wording.refused(DataError, lambda: audit_run(run))


def test_the_command_tells_and_its_exit_code_too(run: Path) -> None:
    told = CliRunner().invoke(cli, ["audit", str(run)])
    assert told.exit_code == 0
    assert "10,500 rows in the table; 19 of 19 steps in 1 attempt\n" in told.output
    assert "epoch 0: 10,500 rows trained, each once\n" in told.output
    assert "epoch 1: 2,800 rows trained, each at most once" in told.output
    tamper(run, 2, 5, hash_at(run, 9, 1))
    told = CliRunner().invoke(cli, ["audit", str(run)])
    assert told.exit_code == 1
    assert "epoch 0: 10,500 rows trained, NOT as expected\n  never trained: " in told.output
    told = CliRunner().invoke(cli, ["audit", str(run), "--json"])
    assert told.exit_code == 1
    document = json.loads(told.output)
    assert not document["proved"]
    assert [len(epoch["problems"]) for epoch in document["epochs"]] == [2, 0]
