"""Three hosts, started as the templates do, are well; each of eight planted faults is named."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import networks
import pytest
from networks import ManyHosts
from small_jobs import run_distrain
from waiting import until

from distrain.errors import ClusterError
from distrain.workers.open_cluster import connect

WHY_NOT = networks.why_not() or (
    None if shutil.which("unshare") else "needs `unshare`, of Debian's util-linux"
)
FAULTY = ("vers", "fold", "shm", "name", "intf", "clck", "gpu1", "gpu2")
RENDEZVOUS = "29400-29499"
GPU = "GPU-5ca1ab1e-0000-4000-8000-000000000001"
NVIDIA_SMI = f"""#!/bin/sh
case "$*" in
  *--query-gpu*) echo "{GPU}, NVIDIA H100 80GB HBM3, 81559, 81000, 570.86.10" ;;
  *) echo "| NVIDIA-SMI 570.86.10   Driver Version: 570.86.10   CUDA Version: 12.8 |" ;;
esac
"""
CLOCK_AHEAD = """
import time

_real = time.time
time.time = lambda: _real() + 90.0
"""
OF_THE_MACHINE = {"memory", "free space", "open files"}
"""Warnings that a small machine deserves, whatever its clusters do."""

pytestmark = [
    pytest.mark.release,
    pytest.mark.timeout(300),
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]


class World:
    """A scheduler and workers on hosts of their own, each by the words of the templates."""

    def __init__(self, hosts: ManyHosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        self.runs = folder / "runs"
        self.address = f"tcp://{hosts.addresses['sched']}:8786"
        self._log = (folder / "dask.log").open("a")
        self._started: list[subprocess.Popen[bytes]] = []
        self.runs.mkdir()

    def start_scheduler(self) -> None:
        host = self.hosts.addresses["sched"]
        words = (
            *("scheduler", "--host", host, "--port", "8786", "--dashboard-address", f"{host}:8787"),
            *("--preload", "distrain.preload"),
        )
        self._start("sched", words, env={"DISTRAIN_RENDEZVOUS_PORTS": RENDEZVOUS})

    def start_worker(
        self, name: str, *first: str, nanny: tuple[str, ...] = ("--no-nanny",), **env: str
    ) -> None:
        words = (
            *("worker", self.address, "--name", name, "--host", self.hosts.addresses[name]),
            *("--worker-port", "9000", *nanny, "--dashboard-address", "127.0.0.1:9002"),
            *("--nthreads", "1", "--local-directory", str(self.folder / name)),
        )
        self._start(name, words, *first, env=env)

    def _start(self, name: str, words: tuple[str, ...], *first: str, env: dict[str, str]) -> None:
        hosts_file = self.folder / f"hosts-{name}"
        if not hosts_file.exists():
            hosts_file.write_text(f"127.0.0.1 localhost\n{self.hosts.addresses[name]} {name}\n")
        mounts = (
            f"mount --bind {hosts_file} /etc/hosts",
            "mount -t tmpfs -o size=2g tmpfs /dev/shm",
            *first,
        )
        command = [*self.hosts.wrapper(name, *mounts), sys.executable, "-m", "dask", *words]
        quiet = {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error"}
        self._started.append(
            subprocess.Popen(
                command,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **quiet, **env},
                start_new_session=True,
            )
        )

    def wait_for_workers(self, number: int) -> None:
        until(self._answers, "the scheduler answers")
        with connect(self.address, timeout_s=90.0) as client:
            client.wait_for_workers(number, timeout=120)

    def _answers(self) -> bool:
        with suppress(ClusterError), connect(self.address):
            return True
        return False

    def examine(self, *words: object) -> tuple[int, dict[str, Any], str]:
        at = ("--scheduler", self.address, "--run-root", self.runs, *words)
        done = run_distrain("doctor", *at, "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    def stop(self) -> None:
        for process in reversed(self._started):
            os.killpg(process.pid, 15)  # a nanny ends its worker
        for process in self._started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        self._log.close()


@pytest.fixture
def world() -> Iterator[World]:
    # The workers' /dev/shm is their own, and pytest's folder may lie below the machine's.
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        ManyHosts("sched", "a", "b", *FAULTY) as hosts,
    ):
        made = World(hosts, Path(folder))
        try:
            yield made
        finally:
            made.stop()


def plant_faults(world: World) -> None:
    """Eight more workers; what is wrong with each is in its name. And one port is closed to `a`."""
    folder = world.folder
    old = folder / "old" / "pyarrow-1.2.3.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.2.3\n")
    (folder / "ahead").mkdir()
    (folder / "ahead" / "sitecustomize.py").write_text(CLOCK_AHEAD)
    (folder / "bin").mkdir()
    (folder / "bin" / "nvidia-smi").write_text(NVIDIA_SMI)
    (folder / "bin" / "nvidia-smi").chmod(0o755)
    (folder / "hosts-name").write_text("127.0.0.1 localhost\n127.0.1.1 name\n")
    world.hosts.on("intf", "link", "add", "eth9", "type", "veth", "peer", "name", "eth9p")
    world.hosts.on("intf", "addr", "add", "10.9.9.9/24", "dev", "eth9")
    for end in ("eth9", "eth9p"):
        world.hosts.on("intf", "link", "set", end, "up")
    # Answers from these ports do not reach `a`: to it a firewall drops them.
    to_a = ("to", world.hosts.addresses["a"], "ipproto", "tcp", "sport", RENDEZVOUS)
    world.hosts.on("sched", "rule", "add", *to_a, "blackhole")

    with_gpu = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    world.start_worker("vers", PYTHONPATH=str(folder / "old"))
    world.start_worker("fold", f"mount -t tmpfs tmpfs {world.runs}")
    world.start_worker("shm", "mount -t tmpfs -o size=16m tmpfs /dev/shm")
    world.start_worker("name")
    world.start_worker("intf", DISTRAIN_INTERFACE="eth9")
    world.start_worker("clck", PYTHONPATH=str(folder / "ahead"))
    world.start_worker("gpu1", **with_gpu)
    world.start_worker("gpu2", **with_gpu)


def test_a_well_cluster_is_green_and_each_fault_is_named(world: World) -> None:
    nanny = ("--nanny-port", "9001")
    world.start_scheduler()
    world.start_worker("a", nanny=nanny)
    world.start_worker("b", nanny=nanny)
    world.wait_for_workers(2)

    code, report, _ = world.examine()
    assert [f for f in report["findings"] if f["check"] not in OF_THE_MACHINE] == []
    assert (code, report["mistakes"]) == (0, 0)
    links = report["connections"]
    assert not any(link["trouble"] for link in links)
    at_scheduler = {link["address"] for link in links if link["rendezvous"]}
    assert at_scheduler == {
        f"{world.hosts.addresses['sched']}:{port}" for port in (29400, 29450, 29499)
    }
    between = {
        (link["source"]["name"], link["target"]["name"]) for link in links if not link["rendezvous"]
    }
    assert between == {("a", "b"), ("b", "a")}
    assert list(world.runs.iterdir()) == []

    plant_faults(world)
    world.wait_for_workers(10)
    code, report, _ = world.examine()
    assert code == 1
    found = report["findings"]

    def named(check: str, *places: str, holds: str, severity: str = "mistake") -> dict[str, Any]:
        def fits(finding: dict[str, Any]) -> bool:
            return (
                finding["check"] == check
                and {p["name"] or p["role"] for p in finding["places"]} == set(places)
                and holds in finding["fact"]
                and finding["severity"] == severity
            )

        one = [finding for finding in found if fits(finding)]
        assert len(one) == 1, (check, places, found)
        found.remove(one[0])
        return one[0]

    assert "pip install 'pyarrow==" in named("versions", "vers", holds="pyarrow 1.2.3;")["mend"]
    named("run root", "fold", holds=f"{world.runs} is another folder than on most others: on tmpfs")
    closed = named("rendezvous", "a", "scheduler", holds="no answer within 5 s")
    assert RENDEZVOUS in closed["mend"]
    wrong = named("connections", "intf", holds="9 other hosts reaches its ranks' address 10.9.9.9")
    assert "DISTRAIN_INTERFACE=eth9 is set there" in wrong["mend"]
    named("clock", "clck", holds="its clock is 90.0 s")
    named("/dev/shm", "shm", holds="/dev/shm has 16.00 MiB", severity="warning")
    assert "dask cuda worker" in named("gpu", "gpu1", "gpu2", holds=GPU)["mend"]
    named("host name", "name", holds="name resolves to 127.0.1.1", severity="warning")
    # What follows from the GPUs, as torch is built without CUDA and the others have none.
    left = [f for f in found if f["check"] not in OF_THE_MACHINE | {"gpu"}]
    assert left == []
    assert list(world.runs.iterdir()) == []
