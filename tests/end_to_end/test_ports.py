"""What listens where, and a cluster whose processes talk TLS with `dask`'s own options."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dask_world import DaskWorld, TrainCommand, records
from waiting import until

from distrain.workers.open_cluster import connect

SECURITY_PAGE = Path(__file__).parents[2] / "docs" / "security.md"
LOOPBACK = "127.0.0.1"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[object, ...]:
    """The options of a certificate that an authority of its own signed, as the manual makes it."""
    page = SECURITY_PAGE.read_text()
    block = next(text for text in page.split("```")[1::2] if "openssl req -x509" in text)
    joined = block.replace("\\\n", " ")
    for line in joined.splitlines():
        if line.startswith("$ openssl"):
            words = line.removeprefix("$ ").split()
            subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    names = {"ca-file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
    return tuple(w for name, file in names.items() for w in (f"--tls-{name}", tmp_path / file))


def documented() -> set[tuple[str, str]]:
    """Processes and protocols of the table of ports."""
    section = SECURITY_PAGE.read_text().partition("\n## Ports\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+) \| [^|]+ \| [^|]+ \| ([A-Za-z ]+) \|", section, re.M)
    return {(process, protocol) for process, protocol in rows if process != "process"}


def listening(process: psutil.Process) -> Iterator[tuple[str, int]]:
    for connection in process.net_connections("inet"):
        if connection.status == psutil.CONN_LISTEN:
            yield connection.laddr.ip, connection.laddr.port


@pytest.mark.slow
def test_nothing_listens_but_what_the_manual_names(job_file: Path, tmp_path: Path) -> None:
    words = ("--host", LOOPBACK, "--dashboard", "--dashboard-address", f"{LOOPBACK}:0")
    with DaskWorld(tmp_path, 2, worker_words=words) as world, connect(world.address) as client:
        client.wait_for_workers(2, timeout=60)
        scheduler = client.scheduler_info(n_workers=-1)
        protocols = {
            world.port: "Dask comm",
            scheduler["services"]["dashboard"]: "HTTP",
        }
        for address, told in scheduler["workers"].items():
            protocols[int(address.rpartition(":")[2])] = "Dask comm"
            protocols[int(told["nanny"].rpartition(":")[2])] = "Dask comm"
            protocols[told["services"]["dashboard"]] = "HTTP"
        run_dir = tmp_path / "run"
        command = TrainCommand(
            job_file, "--scheduler", world.address, "--run-dir", run_dir,
            "--set", "train.max_steps=1000000", "--set", "train.epochs=1000000",
            log=tmp_path / "train.log",
        )  # fmt: skip
        try:
            until(lambda: command.ended or records(run_dir), "the first record")
            assert not command.ended, command.log.read_text()
            ranks = {process.pid for process in world.ranks()}
            workers = {process.pid for process in world.workers()}
            nannies = {process.pid for process in world.nannies}
            assert (len(ranks), len(workers)) == (2, 2)
            found = set()
            for process in [*world.family(), psutil.Process(command.process.pid)]:
                for ip, port in listening(process):
                    if process.pid in ranks:
                        who, protocol = "rank", "gloo or NCCL"
                    elif process.pid == world.scheduler.pid:
                        who, protocol = "scheduler", protocols.get(port, "TCPStore")
                    elif process.pid in workers | nannies:
                        who = "worker" if process.pid in workers else "nanny"
                        protocol = protocols.get(port, f"unknown port {port}")
                    else:
                        who, protocol = " ".join(process.cmdline()), f"unknown port {port}"
                    assert ip == LOOPBACK, f"{who} ({protocol}) listens on {ip}:{port}"
                    found.add((who, protocol))
            assert found == documented()
        finally:
            command.kill()
