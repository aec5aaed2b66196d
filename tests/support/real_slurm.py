"""A real Slurm of its own in a temporary folder: two nodes on this machine, with fake GPUs.

Nothing of the machine's own Slurm is touched: SLURM_CONF names the configuration, munged has a
socket and a key of its own, and all ports are free ones.
"""

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from dask_world import free_port
from waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
NODES = ("a", "b")
START_S = 120.0


def why_absent() -> str | None:
    """Why no Slurm can be started here; `None` where one can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}: of Debian's slurm-wlm and munge"
    return None if os.geteuid() == 0 else "needs root, to start Slurm's daemons and make devices"


class Slurm:
    """A Slurm with the partitions `low`, whose jobs are requeued, and `high`, for which they are.

    Attributes:
        folder: Its files.
        environment: Variables with which its commands find it.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="distrain-slurm-"))
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in [name for name in self.environment if name.startswith(("SLURM_", "SRUN_"))]:
            if name != "SLURM_CONF":
                del self.environment[name]
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Slurm":
        try:
            self._write_files()
            munge = self.folder / "munge"
            self._start(
                "munged", "--force", "--foreground", f"--key-file={munge / 'key'}",
                f"--socket={munge / 'socket'}", f"--pid-file={munge / 'pid'}",
                f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}",
            )  # fmt: skip
            until((munge / "socket").exists, "munged's socket")
            self._start("slurmctld", "-D", "-c")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            until(self._is_up, "two idle nodes")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self._daemons):
                if process.poll() is None:
                    process.send_signal(number)
            for process in self._daemons:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    continue
            for pid in self._left():  # slurmstepd and what jobs have started
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: object) -> str:
        """Run a command of Slurm's; what it printed."""
        done = subprocess.run(
            [str(word) for word in words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says; empty once it is forgotten."""
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "job", number],
            env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        pairs = (word.partition("=") for word in done.stdout.split())
        return {name: value for name, _, value in pairs}

    def wait_for(self, number: str, *states: str) -> dict[str, str]:
        """Wait until a job has one of these states."""

        def job() -> dict[str, str]:
            found = self.job(number)
            return found if found.get("JobState") in states else {}

        wanted = " or ".join(states)
        return until(job, lambda: f"job {number} is {wanted}, not {self.job(number)}", START_S)

    def _is_up(self) -> bool:
        for process in self._daemons:
            assert process.poll() is None, f"{process.args!r} ended: {self._logs()}"
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--partition=low", "--format=%T"],
            env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout.split() == ["idle", "idle"]

    def _logs(self) -> str:
        files = [*self.folder.glob("*.log"), self.folder / "munge" / "log"]
        return "\n".join(f.read_text(errors="replace")[-2000:] for f in files if f.exists())

    def _start(self, *words: str) -> None:
        log = (self.folder / f"{words[0]}-{len(self._daemons)}.out").open("wb")
        with log:
            self._daemons.append(
                subprocess.Popen(
                    words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )

    def _left(self) -> list[int]:
        mark = f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]

    def _write_files(self) -> None:
        folder, host = self.folder, socket.gethostname().partition(".")[0]
        folder.chmod(0o755)
        for name in ("munge", "state", "dev", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        for number in range(2):  # Slurm wants character devices; these are /dev/null's
            os.mknod(folder / "dev" / f"nvidia{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        (folder / "gres.conf").write_text(
            f"NodeName={','.join(NODES)} Name=gpu File={folder}/dev/nvidia[0-1]\n"
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "slurm.conf").write_text(
            _CONFIGURATION.format(folder=folder, host=host, port=free_port())
            + "".join(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 "
                "RealMemory=4000 Gres=gpu:2\n"
                for node in NODES
            )
        )


_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2
KillWait=30
UnkillableStepTimeout=60
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=100
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""
