"""Nobody is logged in, and no setting of the environment counts."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("DISTRAIN_SERVER", "DISTRAIN_TOKEN", "DISTRAIN_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
