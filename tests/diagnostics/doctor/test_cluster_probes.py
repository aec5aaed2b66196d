"""The doctor's probes on this machine, and the whole examination of a cluster in this process."""

import asyncio
import json
import os
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributed import LocalCluster

from distrain.cli.main import cli
from distrain.diagnostics.doctor import links, probes
from distrain.diagnostics.doctor.facts import ProcessFacts
from distrain.diagnostics.doctor.machine import check_for_rapids

LOOPBACK = "127.0.0.1"
SMI = """#!/bin/sh
case "$*" in
  *--query*) echo "GPU-1, NVIDIA H100, 81559, 81000, 570.86"
    echo "GPU-2, GB10, [N/A], [N/A], 570.86" ;;
  *) echo "| NVIDIA-SMI 570.86  Driver Version: 570.86  CUDA Version: 12.8 |" ;;
esac
"""


def test_facts_of_this_process_travel_as_json() -> None:
    values = asyncio.run(probes.look(LOOPBACK))
    facts = ProcessFacts.from_json(json.loads(json.dumps(values)) | {"of_a_later_version": 1})
    assert facts.interface == "lo"
    assert facts.rank_address == LOOPBACK
    assert facts.versions["distrain"]
    assert facts.memory_bytes > facts.available_bytes > 0


def test_gpus_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    seen = probes.query_gpus()
    assert [(gpu.uuid, gpu.free_bytes) for gpu in seen.gpus] == [
        ("GPU-1", 81000 * 2**20),
        ("GPU-2", 0),
    ]
    assert (seen.driver, seen.cuda) == ("570.86", "12.8")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert probes.query_gpus() == probes.GpusSeen()


def test_a_link_that_works_one_that_is_closed_and_one_that_stands_still() -> None:
    async def story() -> list[str]:
        (port,) = await links.listen("key", LOOPBACK, lifetime_s=60.0)

        async def never_reads(_: object, writer: asyncio.StreamWriter) -> None:
            await ended.wait()
            writer.close()

        ended = asyncio.Event()
        # Small buffers, so that a text that nobody reads does not fit.
        silent = await asyncio.start_server(never_reads, LOOPBACK, 0, limit=1024)
        closed = await asyncio.start_server(never_reads, LOOPBACK, 0)
        closed_port = closed.sockets[0].getsockname()[1]
        closed.close()
        await closed.wait_closed()
        ports = [port, closed_port, silent.sockets[0].getsockname()[1]]
        troubles = await links.try_links([[LOOPBACK, port] for port in ports], 0.5)
        ended.set()
        silent.close()
        await links.stop_listening("key")
        return troubles + await links.try_links([[LOOPBACK, port]], 5.0)

    works, closed, silent, after = asyncio.run(story())
    assert works == ""
    assert closed == after == "Connection refused"
    assert silent == "it opened, but 1 MiB did not get through within 0.5 s"


def test_a_file_is_left_found_and_removed(tmp_path: Path) -> None:
    async def story() -> None:
        left = await probes.leave_file(str(tmp_path), "a")
        assert left["free_bytes"] > 0
        assert left["filesystem"]
        assert await probes.find_files(str(tmp_path), ["a", "b"]) == ["a"]
        await probes.remove_files(str(tmp_path), ["b", "a"])
        await probes.remove_files(str(tmp_path), ["a"])
        assert list(tmp_path.iterdir()) == []
        gone = await probes.leave_file(str(tmp_path / "gone"), "a")
        assert gone["trouble"] == "No such file or directory"

    asyncio.run(story())


def test_the_command_examines_a_cluster_and_leaves_nothing(tmp_path: Path) -> None:
    at = LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", host=LOOPBACK,
        dashboard_address=":0", threads_per_worker=1,
    )  # fmt: skip
    with at as cluster:
        words = ["doctor", "--run-root", str(tmp_path), "--device", "cpu"]
        done = CliRunner().invoke(cli, [*words, "--scheduler", cluster.scheduler_address])
    lines = done.output.splitlines()
    assert done.exit_code == 0, done.output
    assert lines[1].startswith("cluster: ")
    assert lines[1].endswith(" on 1 worker")
    assert "not checked: connections between hosts; all workers are on one host" in lines
    assert [line.split()[0] for line in lines[-4:-1]] == ["process", "scheduler", "this"]
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_worker_that_fell_silent_is_removed_by_others(tmp_path: Path) -> None:
    from distrain.diagnostics.doctor.cluster import _Examination

    worker = "tcp://10.0.0.6:1"
    info = {"address": "tcp://10.0.0.5:8786", "workers": {worker: {}}}
    examination = _Examination(None, info, 20.0)
    (silent,) = examination.workers
    examination._run_root = str(tmp_path)
    examination._files = {examination.here: "here", silent: "silent"}
    examination._silent[silent] = "no answer within 20 s"
    for name in ("here", "silent", "of another"):
        (tmp_path / name).write_text(name)
    asyncio.run(examination._clean_up())
    assert [path.name for path in tmp_path.iterdir()] == ["of another"]


def test_rapids_doctor_finds_a_check_that_passes() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["rapids_doctor_check"]["distrain"].partition(":")
    assert getattr(import_module(module), name) is check_for_rapids
    assert "checks of distrain passed" in check_for_rapids(verbose=False, gpu_info=None)
