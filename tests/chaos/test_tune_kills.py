"""A search that is killed at random moments ends with the trials of one that is left alone."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from dask_world import TrainCommand
from small_jobs import small_document
from waiting import until
from yaml import safe_dump

pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]

TRIALS, KILLS = 6, 5
SPACE = ("train.optimizer.lr=0.001..0.1", "train.global_batch_size=250,500")


def search(job: Path, folder: Path, log: Path) -> TrainCommand:
    over = [word for one in SPACE for word in ("--over", one)]
    words = (job, "--run-dir", folder, "--trials", TRIALS, "--json", *over)
    return TrainCommand(*words, log=log, command="tune")


def trials(folder: Path) -> list[dict[str, Any]]:
    """Return each trial's values, score and state, by its number."""
    rows = json.loads((folder / "trials.json").read_text())["trials"]
    kept = ("number", "values", "value", "state")
    return sorted(
        ({name: row[name] for name in kept} for row in rows), key=lambda row: row["number"]
    )


def test_a_search_that_is_killed_finds_what_an_undisturbed_one_finds(
    prepared: Path, tmp_path: Path
) -> None:
    spec = small_document(prepared)
    spec["train"] |= {"max_steps": 60, "epochs": 5}
    spec |= {
        "resources": {"backend": "inline", "num_ranks": 1},
        "evaluate": {"every_steps": 20},
        "checkpoint": {"every_steps": 10, "every_s": None, "keep_best": "log_loss"},
    }
    job, log, rng = tmp_path / "job.yaml", tmp_path / "log", random.Random(5)
    job.write_text(safe_dump(spec))
    calm = search(job, tmp_path / "calm", tmp_path / "calm.log")
    assert calm.wait(600) == 0, (tmp_path / "calm.log").read_text()
    killed, kills = tmp_path / "killed", 0
    while kills < KILLS:
        command = search(job, killed, log)
        until((killed / "trials").exists if kills else killed.exists, "it has begun")
        time.sleep(rng.uniform(0.5, 12.0))  # the moment of the kill, not a wait
        kills += not command.ended
        command.kill()
    last = search(job, killed, log)
    assert last.wait(900) == 0, log.read_text()[-3000:]
    assert trials(killed) == trials(tmp_path / "calm")
    best = [(folder / "best.yaml").read_text() for folder in (killed, tmp_path / "calm")]
    assert best[0] == best[1]
