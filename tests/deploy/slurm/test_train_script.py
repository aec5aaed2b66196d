"""What the sbatch template decides: the run's directory, and whether the job is requeued."""

import os
import subprocess
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parents[3] / "deploy" / "slurm" / "train.sbatch"
PROGRAMS = {
    "srun": """while [ "${1#--}" != "$1" ]; do shift; done; exec "$@" """,
    "scontrol": """echo "$@" >>"$ASKED"; exit 1""",  # with 0 the script waits for Slurm to end it
    # The cluster writes where it is and waits for the notice; `train` has the outcome it is told.
    "python": """
case "$3" in
distrain.workers.serve_slurm)
    trap 'exit 0' USR1
    echo >"$4/client.env"
    while :; do sleep 0.05; done ;;
esac
echo "$@" >>"$ASKED"
mkdir -p "$RUN"
touch "$RUN/run.json"
set -- $OUTCOME
{
printf '  "reason": "%s",\\n  "checkpoints": {\\n    "step": %s,\\n  },\\n' "$@"
printf '  "warm_start": {\\n    "step": 50,\\n  }\\n'
} >"$RUN/summary.json"
exit ${CODE:-100}
""",
}


class Job:
    """The template as Slurm starts it, again and again."""

    def __init__(self, folder: Path, *words: str, run: Path, **environment: str):
        (folder / "bin").mkdir()
        for name, text in PROGRAMS.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "bin" / name).chmod(0o755)
        self.asked = folder / "asked"
        self.words = words
        self.starts = 0
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "RUN": str(run),
            "ASKED": str(self.asked),
            **environment,
        }

    def start(self, outcome: str, code: int = 100) -> str:
        """What the script says of a start after which the summary has this reason and step."""
        done = subprocess.run(
            ["bash", TEMPLATE, *self.words],
            env=self.environment
            | {"OUTCOME": outcome, "CODE": str(code), "SLURM_RESTART_COUNT": str(self.starts)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.starts += 1
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.mark.slow
def test_a_preempted_job_is_told_to_be_requeued_and_one_that_failed_is_not(tmp_path: Path):
    run = tmp_path / "run"
    job = Job(tmp_path, "job.yaml", str(run), run=run)
    for reason in ("Preempted", "CoordinatorLost"):
        assert job.start(f"{reason} {10 * job.starts + 10}") == (
            "requeued: the run resumes when Slurm restarts this job\n"
        )
    assert job.start("RankFailed 20") == ""
    asked = job.asked.read_text().splitlines()
    assert asked[0] == f"-P -m distrain train job.yaml --run-dir {run}"
    assert asked[1::2] == ["requeue 7", "requeue 7"]
    assert asked[2::2] == [f"-P -m distrain train --resume {run}"] * 2
    assert not [*tmp_path.glob("run.cluster/*")]


@pytest.mark.slow
def test_starts_without_a_newer_checkpoint_come_to_an_end(tmp_path: Path):
    """Such as those of a time limit that is no longer than the notice of it."""
    run = tmp_path / "run"
    job = Job(tmp_path, "job.yaml", str(run), run=run, DISTRAIN_MAX_IDLE_STARTS="2")
    for step in ("null", "0", "0", "30", "30"):  # a newer one begins the count anew
        assert "requeued: the run resumes" in job.start(f"Preempted {step}")
    told = job.start("Preempted 30")
    assert "requeued: the run resumes" not in told
    assert "2 times in a row without a new checkpoint" in told
    assert "time limit" in told
    assert not [*tmp_path.glob("run.cluster/*")]


def test_a_requeued_job_ends_only_if_it_is_the_one_that_succeeded(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    summary = run / "summary.json"
    job = Job(tmp_path, "job.yaml", str(run), run=run)
    job.start("Preempted 10")  # continues the run of an earlier job, and is requeued
    job.asked.unlink()
    text = '{\n  "state": "succeeded",\n  "reason": ""\n}\n'
    summary.write_text(text)
    os.utime(summary, (0, 0))
    job.start("none null", code=0)
    assert "distrain train" in job.asked.read_text(), "its node died before it wrote a summary"
    job.asked.unlink()
    (tmp_path / "run.cluster" / "7.progress").write_text("-1 0\n")
    summary.write_text(text)
    job.start("none null", code=0)
    assert not job.asked.exists(), "its node died after it had succeeded"


@pytest.mark.slow
@pytest.mark.parametrize("given", ["runs", "runs/seed-%a"])
def test_tasks_of_an_array_have_runs_of_their_own(tmp_path: Path, given: str):
    run = tmp_path / given / "3" if "%" not in given else tmp_path / "runs" / "seed-3"
    words = ("job-%a.yaml", f"{tmp_path}/{given}", "--set", "train.seed=%a")
    job = Job(tmp_path, *words, run=run, SLURM_ARRAY_TASK_ID="3")
    job.start("none null", code=0)
    assert job.asked.read_text() == (
        f"-P -m distrain train job-3.yaml --run-dir {run} --set train.seed=3\n"
    )
