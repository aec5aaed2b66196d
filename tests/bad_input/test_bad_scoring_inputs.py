"""`distrain evaluate` and `distrain predict` on bad data and bad models."""

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

UNLABELLED = [damage for damage in (*FOOTER_DAMAGES[:1], *ROW_DAMAGES) if not damage.needs_label]


@pytest.mark.parametrize("damage", [*FOOTER_DAMAGES, *ROW_DAMAGES], ids=lambda d: d.name)
def test_evaluate_names_the_culprit(
    prepared: Path, model: Path, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    file = prepared / "valid" / "part-0.parquet"
    damage.inflict(file)
    done = tell(capsys, "evaluate", model, file)
    assert_one_screen(done, 1, file, *damage.culprits)
    assert done.stdout == ""


@pytest.mark.usefixtures("cluster_here")
@pytest.mark.parametrize("damage", UNLABELLED, ids=lambda damage: damage.name)
def test_predict_names_the_culprit(
    prepared: Path, model: Path, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    file = prepared / "valid" / "part-0.parquet"
    damage.inflict(file)
    out = prepared.parent / "scores"
    done = tell(capsys, "predict", model, prepared / "train", file, "--out", out)
    assert_one_screen(done, 1, file, *damage.culprits)
    assert_nothing_left(out)
