"""The cable of a worker is pulled: neither its peer nor the scheduler reaches it.

A rank that its peer alone does not hear from is in `test_elastic.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import networks
import pytest
from dask_world import DaskWorld, TrainCommand, records, what_counts
from networks import Hosts
from small_jobs import run_distrain, small_document
from waiting import until
from yaml import safe_dump

WEIGHTS = Path("model") / "weights.safetensors"
WHY_NOT = networks.why_not()

pytestmark = [
    pytest.mark.release,
    pytest.mark.timeout(600),
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts() as made:
        yield made


def write_job(prepared: Path, path: Path) -> Path:
    document = small_document(prepared)
    document["train"] |= {"max_steps": 600, "epochs": 100, "log_every_steps": 25}
    document |= {
        "checkpoint": {"every_steps": 25},
        "deadlines": {"progress_s": 5.0},
        "restart": {"max_rank_failures": 100, "max_worker_losses": 100, "backoff_s": 0.5},
    }
    path.write_text(safe_dump(document))
    return path


def test_a_cut_cable_costs_time_and_nothing_else(
    prepared: Path, tmp_path: Path, hosts: Hosts
) -> None:
    spec, run_dir, log = (
        write_job(prepared, tmp_path / "job.yaml"),
        tmp_path / "cut",
        tmp_path / "l",
    )
    done = run_distrain("train", spec, "--run-dir", tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    with DaskWorld(tmp_path, 2, hosts.here, hosts.wrappers) as world:
        command = TrainCommand(spec, "--scheduler", world.address, "--run-dir", run_dir, log=log)
        try:
            until(lambda: command.ended or len(records(run_dir)) >= 2, "some steps")
            assert not command.ended, log.read_text()
            hosts.cut_off(1)
            until(lambda: "restart" in log.read_text(), "the watchdog to notice")
            hosts.plug_in(1)
            assert command.wait(200) == 0, log.read_text()
        finally:
            command.kill()
    assert "no progress for 5 s" in log.read_text()
    assert (run_dir / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
    assert what_counts(run_dir) == what_counts(tmp_path / "whole")
