"""Days of a target that drifts, on gangs of ranks: in their order, scored, killed, and audited."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from loaded_scripts import run_script
from small_jobs import CARDINALITIES, draw_rows

from distrain.schema import criteo_schema
from distrain.train.audit.audit import audit_run

SCRIPT = Path(__file__).with_name("resume_ranks.py")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAYS, ROWS, BATCH = 4, 1_200, 50
STEPS = ROWS // BATCH  # of a day, and batches of its scoring
TURN = 0.5  # what decides a click turns by so much a day, in radians
JOB = [
    f"train={{global_batch_size: {BATCH}, max_steps: null, log_every_steps: 20, audit: true}}",
    "train.optimizer={kind: adam, lr: 0.01}",
    "checkpoint={every_steps: 15, every_s: null, keep: 2}",
]
IN_ORDER = ["data.windows={by: file}", "evaluate={next_window: true, max_auc_bound: 1.0}"]
# Places of the agreement: 40 steps, 40 batches of the next day's scoring, 40 steps, ...
ENDS: dict[str, list[dict[str, int]]] = {
    "killed": [{"kill": 2 * STEPS + 20}, {"kill": STEPS + 3}],
    "stopped in a scoring": [{"stop": 3 * STEPS + 10}],
    "stopped on a border": [{"stop": STEPS}],
    "killed after a scoring": [{"kill": 2 * STEPS + 3}],
}


def day(number: int) -> pa.Table:
    rows = draw_rows(ROWS, 300 + number)
    logit = 3.0 * clicked_by(rows, number)
    chance = np.random.default_rng(number).random(ROWS)
    label = (chance < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return rows.set_column(0, "label", pa.array(label))


def clicked_by(rows: pa.Table, number: float) -> Any:
    one, other = (rows[name].to_numpy() for name in ("I1", "I2"))
    return np.cos(TURN * number) * one + np.sin(TURN * number) * other


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all trainings left their results."""
    prepared, root = tmp_path_factory.mktemp("drifting"), tmp_path_factory.mktemp("runs")
    for split, numbers in (("train", range(DAYS)), ("valid", [DAYS])):
        (prepared / split).mkdir()
        for number in numbers:
            path = prepared / split / f"day_{number}.parquet"
            pq.write_table(day(number), path, row_group_size=300)
    criteo_schema(CARDINALITIES).save(prepared / "schema.pbtxt")
    told = {"shuffled": {"spec": [*JOB, "resources.num_ranks=1"], "attempts": [{}]}}
    for ranks in (1, 2, 4):
        spec = [*JOB, *IN_ORDER, f"resources.num_ranks={ranks}"]
        told[str(ranks)] = {"spec": spec, "attempts": [{}]}
    for name, ends in ENDS.items():
        attempts = [{"end": end} for end in [*ends, {}]]
        told[name] = {"spec": told["2"]["spec"], "attempts": attempts}
    (root / "stories.json").write_text(json.dumps(told))
    process = run_script(SCRIPT, root, prepared, root / "stories.json", timeout_s=580.0)
    assert (root / "done").exists(), process.stderr[-5000:]
    return root


def scored(folder: Path, name: str) -> list[dict[str, Any]]:
    """What rank 0 told of each scoring, over all attempts; the last of each counts."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for attempt in range(1, len(ENDS.get(name, [])) + 2):
        for line in (folder / f"{name}.{attempt}.0.events").read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == "evaluation_done":
                found[event["step"], event.get("window", "")] = event
    return [found[key] for key in sorted(found)]


def windows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in scored(folder, name) if "window" in event]


def test_the_progressive_auc_is_one_ranks_on_any_number_of_ranks(folder: Path) -> None:
    alone = windows_of(folder, "1")
    assert [event["step"] for event in alone] == [STEPS * n for n in range(1, DAYS)]
    assert alone[-1]["progressive"]["rows"] == ROWS * (DAYS - 1)
    for ranks in ("2", "4"):
        found = windows_of(folder, ranks)
        assert [event["window"] for event in found] == [event["window"] for event in alone]
        for event, of_one in zip(found, alone, strict=True):
            # The same rows in each step; sums run in another order.
            assert event["progressive"]["rows"] == of_one["progressive"]["rows"]
            assert abs(event["progressive"]["auc"] - of_one["progressive"]["auc"]) < 1e-4


@pytest.mark.parametrize("name", ENDS)
def test_what_was_interrupted_ends_with_the_bits_of_a_quiet_run(folder: Path, name: str) -> None:
    last = len(ENDS[name]) + 1
    for rank in range(2):
        quiet = torch.load(folder / f"2.1.{rank}.pt", weights_only=True)
        state = torch.load(folder / f"{name}.{last}.{rank}.pt", weights_only=True)
        assert state.keys() == quiet.keys()
        assert all(torch.equal(state[key], quiet[key]) for key in quiet)
    for event, expected in zip(scored(folder, name), scored(folder, "2"), strict=True):
        for field in ("step", "metrics", "auc", "window", "progressive"):
            assert event.get(field) == expected.get(field)


@pytest.mark.parametrize("name", ["1", "2", "4", *ENDS])
def test_no_row_of_a_day_came_before_the_day_before_had_ended(folder: Path, name: str) -> None:
    found = audit_run(folder / name)
    assert found.proved, found
    expected = [(f"day_{number}.parquet", ROWS, True) for number in range(DAYS)]
    assert [(one.window, one.rows, one.whole) for one in found.epochs] == expected
