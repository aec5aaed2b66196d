"""`distrain evaluate` and `distrain predict` on bad data and bad models."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged import (
    FOOTER_DAMAGES,
    ROW_DAMAGES,
    Damage,
    assert_nothing_left,
    assert_one_screen,
    cut_short,
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


@pytest.mark.usefixtures("cluster_here")
@pytest.mark.parametrize(
    ("damage", "culprits"),
    [
        (shutil.rmtree, ["no such saved model"]),
        (lambda m: (m / "model.json").unlink(), ["lacks model.json"]),
        (lambda m: (m / "model.json").write_bytes(b""), ["model.json", "cannot be read"]),
        (lambda m: (m / "model.json").write_text("{}"), ["model.json", "format"]),
        (lambda m: (m / "weights.safetensors").unlink(), ["lacks weights.safetensors"]),
        (lambda m: cut_short(m / "weights.safetensors"), ["weights.safetensors", "damaged"]),
        (lambda m: (m / "weights.safetensors").write_bytes(b""), ["weights.safetensors"]),
    ],
)
def test_a_bad_model(
    prepared: Path, model: Path, capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], object], culprits: list[str],
) -> None:  # fmt: skip
    broken = shutil.copytree(model, prepared.parent / "broken")
    damage(broken)
    out = prepared.parent / "scores"
    for words in (("evaluate",), ("predict", "--out", out)):
        done = tell(capsys, *words, broken, prepared / "valid")
        assert_one_screen(done, 1, broken, *culprits, hint=False)
    assert_nothing_left(out)
