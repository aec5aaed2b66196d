"""The wall clock of scheduler, workers and ranks jumps by a day, back, and back again."""

from pathlib import Path

import pytest
from dask_world import DaskWorld, TrainCommand, records, what_counts
from small_jobs import run_distrain, small_document, write_prepared
from waiting import until
from yaml import safe_dump

WEIGHTS = Path("model") / "weights.safetensors"
JUMPING = """
import os, time

_real, _file = time.time, os.environ["CLOCK_FILE"]


def _jumped():
    with open(_file) as offset:
        return _real() + float(offset.read() or 0)


time.time = _jumped
"""

pytestmark = pytest.mark.release


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    prepared = write_prepared(tmp_path / "prepared")
    document = small_document(prepared)
    document["train"] |= {"max_steps": 2_000, "epochs": 100, "log_every_steps": 50}
    document |= {
        "checkpoint": {"every_steps": 200, "every_s": 1.0},
        "restart": {"max_rank_failures": 0, "max_worker_losses": 0},
        "deadlines": {"progress_s": 30.0, "total_s": 200.0},
    }
    spec, run_dir, log = tmp_path / "job.yaml", tmp_path / "jumps", tmp_path / "log"
    spec.write_text(safe_dump(document))
    done = run_distrain("train", spec, "--run-dir", tmp_path / "steady")
    assert done.returncode == 0, done.stderr
    clock = tmp_path / "clock"
    clock.write_text("0")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(JUMPING)
    faked = ["env", f"PYTHONPATH={tmp_path / 'site'}", f"CLOCK_FILE={clock}"]
    with DaskWorld(tmp_path, 2, wrappers=[faked] * 2, scheduler_wrapper=faked) as world:
        command = TrainCommand(spec, "--scheduler", world.address, "--run-dir", run_dir, log=log)
        try:
            for jump_s in (86_400, -86_400, 0):
                steps = len(records(run_dir))
                until(lambda n=steps: command.ended or len(records(run_dir)) > n, "steps")
                assert not command.ended, log.read_text()
                clock.write_text(str(jump_s))
            assert command.wait(120) == 0, log.read_text()
        finally:
            command.kill()
    assert "restart" not in log.read_text()
    assert (run_dir / WEIGHTS).read_bytes() == (tmp_path / "steady" / WEIGHTS).read_bytes()
    assert what_counts(run_dir) == what_counts(tmp_path / "steady")
    assert max(record["elapsed_s"] for record in records(run_dir)) < 3_600
