"""Each script of `benchmarks` runs, and its last line says what was measured."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"__init__", "gpu"})
WITHOUT_GOALS = {"overlap", "pages", "retrieval"}


def test_each_script_answers_help(monkeypatch, capsys):
    for name in [*NAMES, "gpu"]:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
        with pytest.raises(SystemExit) as ended:
            import_module(f"benchmarks.{name}").main()
        assert ended.value.code == 0, name
        assert f"usage: {name}.py" in capsys.readouterr().out


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_the_quick_form_ends_with_its_figures(name):
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}.py", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert "skipped" in told or "met" in told or name in WITHOUT_GOALS
    # Some end with 1 where they miss a goal, as a machine that works on other things may.
    assert done.returncode == 0 or not told["met"], done.stderr
