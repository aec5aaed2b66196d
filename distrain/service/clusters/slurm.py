"""A cluster that is a Slurm job, identified by its name."""

import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from distrain.errors import ClusterError, InputError
from distrain.service.clusters.launcher import LauncherState, SchedulerAddress, child_environment
from distrain.service.settings import ClusterProfile, Settings
from distrain.storage.outputs import atomic_file, translated_errors
from distrain.workers.cluster_file import read_started, try_lock
from distrain.workers.serve_slurm import NOTICE_S

COMMAND_S = 30.0  # the timeout of Slurm's commands
POLL_S = 1.0
SEEN_S = 5.0
"""How long an answer of squeue is reused, to limit requests to Slurm's controller."""

_SEEN: dict[Path, tuple[float, list["SlurmJob"]]] = {}
"""By the folder of a cluster: the time of squeue's last answer, and the jobs in it."""

_ALIVE = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED,RESIZING,REQUEUED,REQUEUE_HOLD"


@dataclass(frozen=True)
class SlurmJob:
    """A line of squeue: a job that has not ended."""

    id: str
    state: str
    why: str  # Slurm's reason why it waits

    @property
    def order(self) -> tuple[bool, int]:
        """Sort key: a running job comes first, then the job that was submitted first."""
        digits = self.id.partition("_")[0]
        return self.state != "RUNNING", int(digits) if digits.isdigit() else 0


class SlurmLauncher:
    """Submits the cluster as a Slurm job with the name `job_name`, unless there is one already.

    No other cluster of this Slurm user may use that name. `folder` is on a filesystem that the
    nodes share.
    """

    def __init__(self, name: str, profile: ClusterProfile, job_name: str, folder: Path):
        self._name, self._profile = name, profile
        self._job_name, self._folder = job_name, folder

    @classmethod
    def of_service(cls, name: str, settings: Settings, service_id: str) -> Self:
        """Return a service's launcher; `service_id` distinguishes services of one Slurm user."""
        job_name = f"distrain-{service_id[:12]}-{name}"
        folder = settings.run_root(name) / ".clusters" / job_name
        return cls(name, settings.clusters[name], job_name, folder)

    def find(self) -> SchedulerAddress | None:
        return self._found(self._jobs_lately())

    def start(self, num_workers: int | None = None) -> None:
        with try_lock(self._folder / "start.lock") as may_start:
            if may_start and not self._jobs():
                self._submit(num_workers or self._profile.num_workers or 1)

    def stop(self) -> None:
        """Stop the cluster; its ranks get `NOTICE_S` seconds to save checkpoints.

        Blocks until the cluster's jobs have ended, or for about that time; jobs that still run are
        then cancelled. A cluster that waits or is still starting is cancelled at once.
        """
        jobs = self._jobs()
        if self._found(jobs):
            self._cancel([job for job in jobs if job.state != "RUNNING"])
            running = [job.id for job in jobs if job.state == "RUNNING"]
            self._run("scancel", "--signal=USR1", *running)
            until_s = time.monotonic() + NOTICE_S
            while jobs and time.monotonic() < until_s:
                time.sleep(POLL_S)
                jobs = self._jobs()
        self._cancel(jobs)

    def state(self) -> LauncherState:
        """Return Slurm's state of the job; cancel surplus pending jobs of interrupted starts."""
        jobs = self._jobs_lately()
        if not jobs:
            return LauncherState("absent")
        first, *surplus = sorted(jobs, key=lambda job: job.order)
        self._cancel([job for job in surplus if job.state == "PENDING"])
        if first.state == "RUNNING":
            running = self._found([first]) is not None
            return LauncherState(
                "running" if running else "starting", f"Slurm's job {first.id} runs"
            )
        return LauncherState("waiting", f"Slurm's job {first.id} is {first.state}: {first.why}")

    def _cancel(self, jobs: list[SlurmJob]) -> None:
        if jobs:
            self._run("scancel", *(job.id for job in jobs))
            _SEEN.pop(self._folder, None)

    def _found(self, jobs: list[SlurmJob]) -> SchedulerAddress | None:
        running = {job.id for job in jobs if job.state == "RUNNING"}
        started = read_started(self._folder)
        # The file of an earlier job may remain; it contains the job's id.
        if started and started.url and started.slurm_job in running:
            return SchedulerAddress(started.url, started.token)
        return None

    def _jobs_lately(self) -> list[SlurmJob]:
        seen_s, jobs = _SEEN.get(self._folder, (-math.inf, []))
        return jobs if time.monotonic() - seen_s < SEEN_S else self._jobs()

    def _jobs(self) -> list[SlurmJob]:
        told = self._run(
            "squeue", "--me", "--noheader", f"--name={self._job_name}", f"--states={_ALIVE}",
            "--format=%i|%T|%r",
        )  # fmt: skip
        fields = (line.strip().split("|", 2) for line in told.splitlines() if line.strip())
        jobs = [SlurmJob(*field) for field in fields if len(field) == 3]
        _SEEN[self._folder] = (time.monotonic(), jobs)
        return jobs

    def _submit(self, num_workers: int) -> None:
        with translated_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        profile = self._profile
        added = child_environment({}, profile)
        script = sbatch_script(
            job_name=self._job_name,
            folder=str(self._folder),
            python=sys.executable,
            num_workers=num_workers,
            device=profile.device,
            options=profile.slurm,
            environment=added,
        )
        file = self._folder / "job.sh"
        with atomic_file(file) as partial:
            partial.write_text(script, encoding="utf-8")
        self._run("sbatch", "--parsable", str(file))
        _SEEN.pop(self._folder, None)

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run(
                words,
                env=child_environment(os.environ, self._profile),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise ClusterError(
                f"the cluster {self._name} needs Slurm's command {words[0]}, which is not on PATH",
                hint="Run the service where sbatch, squeue and scancel are installed.",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{words[0]} did not answer within {COMMAND_S:g} s",
                where={"cluster": self._name},
                hint="Check Slurm's controller: `scontrol ping`.",
            ) from error
        if done.returncode != 0:
            raise ClusterError(
                f"{words[0]} failed: {done.stderr.strip() or done.returncode}",
                where={"cluster": self._name},
                hint="Try the command by hand; `slurm:` in the cluster's profile has its options.",
            )
        return done.stdout


_OURS = frozenset(
    ("job-name", "dependency", "signal", "output", "error", "ntasks", "open-mode", "requeue",
     "no-requeue", "comment", "chdir", "export")
)  # fmt: skip

_CPUS = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"'
"""Since Slurm 22.05, srun ignores --cpus-per-task of sbatch: tasks would have one CPU each."""


def sbatch_script(
    *,
    job_name: str,
    folder: str,
    python: str,
    num_workers: int,
    device: str,
    options: Mapping[str, str],
    environment: Mapping[str, str],
) -> str:
    """Return a script that starts one task per worker; the first task also runs the scheduler.

    With the dependency `singleton`, Slurm runs one job of a name and user at a time. If a service
    was killed after `sbatch` and submits a second job, the second job waits until the launcher's
    `state` cancels it. `python` is the interpreter on the nodes, `options` are further options of
    sbatch, and `environment` has variables to set.

    Raises:
        InputError: The service sets one of `options` itself, sbatch has no such option, or a value
            is not one line of ASCII.
    """
    given = {name.replace("_", "-"): value for name, value in options.items()}
    for name, value in given.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name in _OURS:
            raise InputError(
                f"slurm.{name}: the service sets this option itself, or sbatch has no such option",
                hint="`sbatch --help` lists options, written here without `--`.",
            )
        if not re.fullmatch(r"[ -~]*", value):
            raise InputError(f"slurm.{name}: the value is not one line of ASCII: {value!r}")
    lines = {
        "job-name": job_name,
        "dependency": "singleton",
        "ntasks": str(num_workers),
        "output": f"{folder}/job-%j.log",
        "no-requeue": "",
        "signal": f"USR1@{NOTICE_S}",
        **given,
    }
    program = [python, "-P", "-m", "distrain.workers.serve_slurm", folder, "--device", device]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
              for name, value in lines.items()),
            "umask 077",
            _CPUS,
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            f"exec srun --kill-on-bad-exit=1 {shlex.join(program)}",
            "",
        ]
    )  # fmt: skip
