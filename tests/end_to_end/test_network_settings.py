"""Real jobs over IPv6, on an interface and on rendezvous ports that the environment names."""

import json
import socket
from pathlib import Path

import psutil
import pytest
from dask_world import DaskWorld, TrainCommand, records
from small_jobs import run_distrain, small_document
from waiting import until
from yaml import safe_dump


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.release
@pytest.mark.timeout(480)
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1; enable IPv6")
def test_two_ranks_train_over_ipv6(prepared: Path, tmp_path: Path) -> None:
    spec, ports = tmp_path / "job.yaml", "27310-27339"
    spec.write_text(safe_dump(small_document(prepared)))
    with DaskWorld(
        tmp_path, 2, "[::1]",
        wrappers=[["env", "DISTRAIN_INTERFACE=lo"]] * 2,
        scheduler_wrapper=["env", f"DISTRAIN_RENDEZVOUS_PORTS={ports}"],
        worker_words=("--host", "[::1]"),
    ) as world:  # fmt: skip
        assert world.address.startswith("tcp://[::1]:")
        run_dir = tmp_path / "run"
        endless = ("--set", "train.max_steps=1000000", "--set", "train.epochs=1000000")
        command = TrainCommand(
            spec, "--scheduler", world.address, "--run-dir", run_dir, *endless, log=tmp_path / "log"
        )
        try:
            until(lambda: command.ended or records(run_dir), "the first record", 240)
            assert not command.ended, command.log.read_text()
            ranks = world.ranks()
            assert len(ranks) == 2
            for rank in ranks:
                assert rank.environ()["GLOO_SOCKET_IFNAME"] == "lo"
                assert rank.environ()["NCCL_SOCKET_IFNAME"] == "=lo"
            listening = {
                (c.laddr.ip, c.laddr.port)
                for c in psutil.Process(world.scheduler.pid).net_connections("inet")
                if c.status == psutil.CONN_LISTEN
            }
            stores = [port for ip, port in listening if ip == "::1" and 27310 <= port <= 27339]
            assert len(stores) == 1, listening
            command.interrupt()
            command.wait()
        finally:
            command.kill()
        assert json.loads((run_dir / "summary.json").read_text())["state"] == "cancelled"

        words = ("--scheduler", world.address, "--run-root", tmp_path, "--device", "cpu")
        examined = run_distrain("doctor", *words, "--json")
        report = json.loads(examined.stdout)
        assert (examined.returncode, report["mistakes"]) == (0, 0), examined.stdout
        at_scheduler = [link for link in report["connections"] if link["rendezvous"]]
        assert [link["address"][:9] for link in at_scheduler] == ["[::1]:273"] * 3
        assert not any(link["trouble"] for link in at_scheduler)
