"""Clusters that are Slurm jobs: the script's text, one job whatever is killed, and a real cluster.

The commands are stand-ins that keep real processes.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import slurm_stand_in

from distrain.errors import ClusterError, InputError
from distrain.service.clusters import make_launcher, slurm as slurm_module
from distrain.service.clusters.slurm import SlurmLauncher, sbatch_script
from distrain.service.settings import Settings

TASK = """#!{python}
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[4])
stat = pathlib.Path(f"/proc/{{os.getpid()}}/stat").read_text().rpartition(")")[2].split()
process = dict(pid=os.getpid(), started_ticks=int(stat[19]), boot_id="b", host="h")
state = dict(process=process, token="t", url="http://h:1", slurm_job=os.environ["SLURM_JOB_ID"])
(folder / "new").write_text(json.dumps(state))
(folder / "new").rename(folder / "state.json")
signal.pause()
"""


def until(condition, wait_s=60.0):
    end_s = time.monotonic() + wait_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not come"
        time.sleep(0.02)
    return found


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "slurm"
    for name, value in slurm_stand_in.install(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm_module, "SEEN_S", 0.0)
    yield folder
    for job in slurm_stand_in.jobs_in(folder):
        os.killpg(job["keeper"], signal.SIGKILL)


@pytest.fixture
def quick_tasks(slurm, monkeypatch):
    program = slurm / "task"
    program.write_text(TASK.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("SLURM_STAND_IN_PROGRAM", str(program))
    return slurm


def launcher_in(folder, **profile):
    profile = {"kind": "slurm", "run_root": str(folder / "shared"), **profile}
    settings = Settings(data_dir=folder / "data", clusters={"gpu": profile})
    return make_launcher("gpu", settings, "0123456789abcdef")


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
        "exec srun --kill-on-bad-exit=1 /venv/bin/python -P -m distrain.cluster.serve_slurm "
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


def test_the_cluster_is_found_by_its_jobs_name(quick_tasks, tmp_path):
    launcher = launcher_in(tmp_path)
    assert launcher.find() is None
    assert launcher.state().phase == "absent"
    launcher.stop()
    launcher.start(2)
    found = until(launcher.find)
    assert (found.url, found.token) == ("http://h:1", "t")
    launcher_in(tmp_path).start()
    [job] = slurm_stand_in.jobs_in(quick_tasks)
    assert job["ntasks"] == "2"
    assert launcher_in(tmp_path).state().detail == f"Slurm's job {job['id']} runs"
    launcher.stop()
    until(lambda: not slurm_stand_in.jobs_in(quick_tasks))
    assert launcher.find() is None  # state.json is still there, of a job that is not


def test_a_starter_that_is_killed_within_sbatch_leaves_no_orphan(
    quick_tasks, tmp_path, monkeypatch
):
    monkeypatch.setenv("SLURM_STAND_IN_BEFORE_S", "0.1")
    monkeypatch.setenv("SLURM_STAND_IN_AFTER_S", "0.1")
    launcher = launcher_in(tmp_path)
    for moment_s in (0.0, 0.03, 0.07, 0.1, 0.14, 0.19, 0.24, 0.3):  # sbatch takes 0.2 s and more
        starter = os.fork()
        if starter == 0:
            try:
                launcher.start()
            finally:
                os._exit(0)
        time.sleep(moment_s)  # the moment of the kill, not a wait
        os.kill(starter, signal.SIGKILL)
        os.waitpid(starter, 0)
    until(lambda: _settled(launcher, quick_tasks))
    launcher.start()
    assert len(slurm_stand_in.jobs_in(quick_tasks)) == 1
    until(launcher.find)
    launcher.stop()
    until(lambda: not slurm_stand_in.jobs_in(quick_tasks))


def _settled(launcher, folder):
    """Whether of all that was submitted one job runs, and no sbatch is under way."""
    launcher.state()  # cancels what is surplus
    jobs = slurm_stand_in.jobs_in(folder)
    submitted = len([*folder.glob("id-*")])
    under_way = [
        1
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_sbatch(entry, folder, {job["keeper"] for job in jobs})
    ]
    return not under_way and len(jobs) == min(submitted, 1)


def _is_sbatch(entry, folder, keepers):
    try:
        words = (entry / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return str(folder / "bin" / "sbatch") in words and int(entry.name) not in keepers


def test_commands_that_fail_or_are_missing(slurm, tmp_path, monkeypatch):
    launcher = launcher_in(tmp_path)
    (slurm / "bin" / "squeue").write_text("#!/bin/sh\necho 'no controller' >&2\nexit 1\n")
    with pytest.raises(ClusterError, match="squeue failed: no controller"):
        launcher.find()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is none"):
        launcher.state()


@pytest.mark.slow
def test_a_slurm_job_is_a_cluster_and_leaves_when_its_time_is_over(slurm, tmp_path):
    launcher = launcher_in(tmp_path, device="cpu")
    launcher.start(2)
    found = until(launcher.find)
    request = urllib.request.Request(f"{found.url}/distrain/jobs")
    request.add_header("Authorization", f"Bearer {found.token}")
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["jobs"] == []
    workers = urllib.request.Request(f"{found.url}/metrics")
    workers.add_header("Authorization", f"Bearer {found.token}")

    def two_workers():
        with urllib.request.urlopen(workers) as answer:
            text = answer.read().decode()
        return 'dask_scheduler_workers{state="idle"} 2.0' in text

    until(two_workers)
    [job] = slurm_stand_in.jobs_in(slurm)
    os.kill(job["keeper"], signal.SIGUSR1)  # Slurm's `--signal`
    until(lambda: not slurm_stand_in.jobs_in(slurm))
    [log] = (tmp_path / "shared" / ".clusters").glob("*/job-*.log")
    assert "Closing" in log.read_text()
    left = subprocess.run(
        ["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert left.stdout == ""


def test_slurms_controller_is_asked_once_for_many_looks(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(SlurmLauncher, "_run", lambda self, *words: asked.append(words[0]) or "")
    for _ in range(20):  # a pass of the reconciler, and a page's files, each with its own launcher
        assert launcher_in(tmp_path).find() is None
        assert launcher_in(tmp_path).state().phase == "absent"
    assert asked == ["squeue"]
    launcher_in(tmp_path).start(1)
    assert asked == ["squeue", "squeue", "sbatch"]
    launcher_in(tmp_path).state()  # what it submitted is looked for at once
    assert asked[3:] == ["squeue"]
