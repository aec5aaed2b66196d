"""Entries of a run that was interrupted once, and whose they are."""

import pytest

from distrain.jobs.job_view import AttemptStarted, Notice, Record
from distrain.runs.sinks.base import RunFacts, Stamped


def record(step, split="train", loss=0.5):
    train = split == "train"
    return Record(
        split, 0, step, 100, 100 * step, step / 10, 50.0 if train else None, loss, 0.9, 0.7, 1e-4,
        stall_pct=(25.0, 50.0) if train else (),
        seconds={"data_wait": 1.0, "optimizer": 3.0} if train else None,
        lr=0.1 if train else None,
    )  # fmt: skip


ENTRIES = (
    AttemptStarted(1, 0, 2),
    record(5, loss=0.9),
    record(10, loss=0.8),
    record(15, loss=0.1),  # taken back
    Notice("a checkpoint is damaged"),
    AttemptStarted(2, 10, 2, "RankDied"),
    record(10, loss=0.8),  # told again
    record(15, loss=0.7),
    record(15, "valid", loss=0.6),
)


@pytest.fixture
def entries():
    return ENTRIES


@pytest.fixture
def stamped():
    return [Stamped(entry, 1000.0 + number) for number, entry in enumerate(ENTRIES)]


@pytest.fixture
def facts(tmp_path):
    parameters = {"train.optimizer.lr": 0.1, "model.hidden": [16, 8], "name": "clicks"}
    return RunFacts("clicks-1", "clicks", tmp_path / "run", {"team": "ads"}, parameters)


@pytest.fixture
def make_record():
    return record
