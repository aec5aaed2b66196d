"""Clusters that are Slurm jobs: the script's text, and what Slurm's commands are asked.

The commands are scripts; `tests/deploy/slurm` has a real Slurm.
"""

import os
from pathlib import Path

import pytest

from distrain.errors import ClusterError, InputError
from distrain.service.clusters import slurm as slurm_module
from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.slurm import sbatch_script
from distrain.service.settings import Settings
from distrain.workers.cluster_file import ProcessId, StartedCluster, write_started


def test_the_script_says_what_the_profile_says():
    script = sbatch_script(
        job_name="distrain-0-gpu",
        folder="/shared/my runs/.clusters/a",
        python="/venv/bin/python",
        num_workers=4,
        device="cuda",
        options={"partition": "gpu", "gpus_per_node": "2", "exclusive": ""},
        environment={"GREETING": "it's"},
    )
    assert script.splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=distrain-0-gpu",
        "#SBATCH --dependency=singleton",
        "#SBATCH --ntasks=4",
        "#SBATCH --output=/shared/my runs/.clusters/a/job-%j.log",
        "#SBATCH --no-requeue",
        "#SBATCH --signal=USR1@120",
        "#SBATCH --partition=gpu",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --exclusive",
        "umask 077",
        '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
        "export GREETING='it'\"'\"'s'",
        "exec srun --kill-on-bad-exit=1 /venv/bin/python -P -m distrain.workers.serve_slurm "
        "'/shared/my runs/.clusters/a' --device cuda",
    ]


@pytest.mark.parametrize(
    "options",
    [{"job-name": "x"}, {"dependency": "x"}, {"time": "1\n#SBATCH --uid=0"}, {"a b": "1"}],
)
def test_options_that_are_no_profiles_business_are_refused(options):
    with pytest.raises(InputError, match=r"^slurm\."):
        sbatch_script(
            job_name="n",
            folder="/f",
            python="p",
            num_workers=1,
            device="cpu",
            options=options,
            environment={},
        )


class Slurm:
    """Commands that note how they were called; `queue` is what squeue prints."""

    def __init__(self, folder: Path):
        self.calls, self.queue = folder / "calls", folder / "queue"
        self.queue.touch()
        for name, acts in (("sbatch", ""), ("squeue", f"cat {self.queue}"), ("scancel", "")):
            (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {self.calls}\n{acts}\n')
            (folder / name).chmod(0o755)

    def called(self, name: str) -> list[str]:
        """The last words of each call of a command."""
        lines = self.calls.read_text().splitlines()
        return [line.split()[-1] for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm_module, "SEEN_S", 0.0)
    return Slurm(tmp_path / "bin")


@pytest.fixture
def launcher(tmp_path):
    profile = {"kind": "slurm", "run_root": str(tmp_path / "shared")}
    settings = Settings(data_dir=tmp_path / "data", clusters={"gpu": profile})
    return make_launcher("gpu", settings, "0123456789abcdef")


def test_the_cluster_is_the_job_of_its_name_and_surplus_ones_are_cancelled(slurm, launcher):
    assert (launcher.find(), launcher.state().phase) == (None, "absent")
    launcher.start(2)
    [script] = slurm.called("sbatch")
    assert "#SBATCH --ntasks=2\n" in Path(script).read_text()
    slurm.queue.write_text("8|PENDING|Dependency\n7|RUNNING|None\n")
    launcher.start(2)
    assert len(slurm.called("sbatch")) == 1, "there is one"
    folder, me = Path(script).parent, ProcessId.of(os.getpid())
    for job, phase in (("6", "starting"), ("7", "running")):  # the file of an earlier one stays
        write_started(folder, StartedCluster(me, "t", url="http://h:1", slurm_job=job))
        assert launcher.state().phase == phase
        assert bool(launcher.find()) == (phase == "running")
    assert set(slurm.called("scancel")) == {"8"}
    slurm.queue.write_text("8|PENDING|Resources\n")
    assert (launcher.state().phase, "Resources" in launcher.state().detail) == ("waiting", True)
    launcher.stop()
    assert slurm.called("scancel")[-1] == "8"


def test_commands_that_fail_or_are_missing(slurm, launcher, tmp_path, monkeypatch):
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho 'no controller' >&2\nexit 1\n")
    with pytest.raises(ClusterError, match="no controller"):
        launcher.find()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="squeue"):
        launcher.state()


def test_slurms_controller_is_asked_once_for_many_looks(slurm, launcher, monkeypatch):
    monkeypatch.setattr(slurm_module, "SEEN_S", 3600.0)
    for _ in range(20):  # a pass of the reconciler, and a page's files
        assert launcher.find() is None
        assert launcher.state().phase == "absent"
    assert len(slurm.called("squeue")) == 1
    launcher.start(1)
    launcher.state()  # looks at once for the job that it submitted
    assert len(slurm.called("squeue")) == 3
