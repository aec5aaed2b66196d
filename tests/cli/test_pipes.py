"""A reader who has seen enough does not end the job."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from small_jobs import distrain_command, small_document, write_prepared
from yaml import safe_dump


@pytest.mark.slow
def test_train_piped_to_head_trains_to_its_end(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(safe_dump(small_document(write_prepared(tmp_path / "data"))))
    words = distrain_command(
        "train", job, "--set", "resources={backend: inline}", "--run-dir", tmp_path / "run"
    )
    done = subprocess.run(
        f"{shlex.join(words)} | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "model").is_dir()


def test_a_terminal_that_lacks_a_letter_gets_a_question_mark(tmp_path: Path) -> None:
    out = tmp_path / "模.pbtxt"
    done = subprocess.run(
        distrain_command("schema", "criteo", "--out", out),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "iso-8859-1"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?.pbtxt" in done.stdout
    assert out.is_file()
