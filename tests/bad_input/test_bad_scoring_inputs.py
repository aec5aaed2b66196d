"""`distrain evaluate` on bad data; `distrain predict` reads rows in the same way."""

from pathlib import Path

import pytest
from damaged import (
    FOOTER_DAMAGES,
    ROW_DAMAGES,
    Damage,
    assert_one_screen,
    tell,
)


@pytest.mark.parametrize("damage", [*FOOTER_DAMAGES, *ROW_DAMAGES], ids=lambda d: d.name)
def test_evaluate_names_the_culprit(
    prepared: Path, model: Path, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    file = prepared / "valid" / "part-0.parquet"
    damage.inflict(file)
    done = tell(capsys, "evaluate", model, file, "--quiet")
    assert_one_screen(done, 1, file, *damage.culprits)
    assert done.stdout == ""
