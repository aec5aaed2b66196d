"""What a reader types who follows the README or the quickstart, in an empty folder."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from small_jobs import distrain_command

from distrain.jobs.run_paths import RunPaths

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("page", "heading", "run", "last"),
    [
        ("README.md", "## Step by step, with a job spec", "first", "distrain predict"),
        pytest.param(
            "docs/quickstart.md",
            "## By hand",
            "dlrm",
            "distrain predict",
            marks=pytest.mark.release,
        ),
    ],
)
def test_commands_work_in_the_order_in_which_they_stand(
    page: str, heading: str, run: str, last: str, tmp_path: Path
) -> None:
    section = (ROOT / page).read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    for spec in re.findall(r"^```yaml\n(.*?)^```", section, re.M | re.S):
        (tmp_path / "job.yaml").write_text(spec)
    blocks = re.findall(r"^```console\n(.*?)^```", section, re.M | re.S)
    commands = [line[2:] for block in blocks for line in block.splitlines() if line[:2] == "$ "]
    # What comes after the scores are variations of one command.
    end = next(n for n, command in enumerate(commands, 1) if command.startswith(last))
    assert end >= 6
    for command in commands[:end]:
        program, *words = command.split()
        assert program == "distrain"
        # Fewer rows, for the time; whole files all the same.
        words = [{"300k": "12k", "60k": "4k"}.get(word, word) for word in words]
        done = subprocess.run(
            distrain_command(*words),
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert (RunPaths(tmp_path / "runs" / run).model / "model.json").is_file()
