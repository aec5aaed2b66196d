"""`distrain train` on bad data: told before anything starts where footers tell, else by a rank."""

import json
from pathlib import Path

import pytest
from damaged import (
    FOOTER_DAMAGES,
    ROW_DAMAGES,
    Damage,
    assert_nothing_left,
    assert_one_screen,
    tell,
)

pytestmark = pytest.mark.usefixtures("undrawn")

DASK = ("--set", "resources={backend: dask, num_ranks: 2, device: cpu}")


def assert_failed_run(run: Path) -> None:
    """A run folder that says why, without a model."""
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["reason"]) == ("failed", "DataError")
    assert summary["model"] is None
    assert_nothing_left(run / "model")


@pytest.mark.parametrize(
    ("damage", "split", "options"),
    [
        (FOOTER_DAMAGES[0], "valid", ()),
        (FOOTER_DAMAGES[0], "train", DASK),
        *((damage, "train", ()) for damage in FOOTER_DAMAGES),
    ],
)
def test_what_footers_tell_is_told_before_a_cluster_and_the_run(
    prepared: Path, job: Path, capsys: pytest.CaptureFixture[str], damage: Damage, split: str,
    options: tuple[str, ...],
) -> None:  # fmt: skip
    file = prepared / split / "part-0.parquet"
    damage.inflict(file)
    run = job.parent / "run"
    done = tell(capsys, "train", job, "--run-dir", run, *options)
    assert_one_screen(done, 1, file, *damage.culprits)
    assert "cluster" not in done.stdout
    assert_nothing_left(run)


@pytest.mark.parametrize(
    ("damage", "split"), [(ROW_DAMAGES[0], "valid"), *((damage, "train") for damage in ROW_DAMAGES)]
)
def test_what_only_rows_tell_is_told_by_the_rank(
    prepared: Path, job: Path, capsys: pytest.CaptureFixture[str], damage: Damage, split: str
) -> None:
    file = prepared / split / "part-0.parquet"
    damage.inflict(file)
    run = job.parent / "run"
    done = tell(capsys, "train", job, "--run-dir", run)
    assert_one_screen(done, 100, "rank 0: ", file, "reason: DataError", *damage.culprits)
    assert_failed_run(run)
