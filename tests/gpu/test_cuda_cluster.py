"""The whole of `distrain train` on a local CUDA cluster, and what its pages tell of the GPU."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from dask_world import TrainCommand, records
from devices import on_gpu
from small_jobs import small_document, write_prepared
from waiting import until
from yaml import safe_dump

pytest.importorskip("dask", reason="dask is not installed")


def get(address: str, path: str) -> Any:
    with urlopen(f"{address}{path}", timeout=30) as answer:
        return json.load(answer)


def address_of(log: Path) -> str | None:
    """Where the command says that its cluster's pages are."""
    found = re.search(r"Dask dashboard: (http://[\d.]+:\d+)", log.read_text())
    return found[1] if found else None


def rank_of(address: str) -> dict[str, Any] | None:
    """What the page tells of the only job's rank once it trains."""
    (job,) = get(address, "/distrain/v1/jobs")["jobs"] or [None]
    if job is None or not job["step"]:
        return None
    (rank,) = get(address, f"/distrain/v1/jobs/{job['id']}")["ranks"]
    return dict(rank)


def begin(device: str, tmp_path: Path, **sections: Any) -> tuple[TrainCommand, Path, Path]:
    """The command at work, its run folder and its log."""
    if device == "cuda":
        pytest.importorskip("dask_cuda", reason="dask-cuda is not installed")
    document = small_document(write_prepared(tmp_path / "prepared")) | sections
    document["resources"] = {"num_ranks": 1, "device": device}
    spec, run, log = tmp_path / "job.yaml", tmp_path / "run", tmp_path / "train.log"
    spec.write_text(safe_dump(document))
    options = ("--run-dir", run, "--dashboard-address", "127.0.0.1:0")
    return TrainCommand(spec, *options, log=log), run, log


@on_gpu
def test_a_run_and_its_gpu_are_shown_while_it_trains(device: str, tmp_path: Path) -> None:
    endless = {"global_batch_size": 500, "epochs": 100_000, "log_every_steps": 20}
    command, run, log = begin(device, tmp_path, train=endless)
    try:
        until(lambda: address_of(log) or command.ended, "an address", 120.0)
        address = address_of(log)
        assert address is not None, log.read_text()

        def filled() -> bool:
            assert not command.ended, log.read_text()
            rank = rank_of(address)
            gpu = rank and rank["gpu"]
            # A worker tells of its GPU once in a while, and at first of one without a rank.
            return bool(rank and (device == "cpu" or (gpu and gpu["memory_used_bytes"])))

        until(filled, "the GPU's figures", 120.0)
        rank = rank_of(address)
        assert rank is not None
        assert rank["device"].startswith(device)
        if device == "cuda":
            gpu = rank["gpu"]
            assert 0 <= gpu["utilisation_pct"] <= 100
            assert 0 < gpu["memory_used_bytes"] < gpu["memory_total_bytes"]
        command.interrupt()
        command.wait()
    finally:
        command.kill()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["state"] == "cancelled", log.read_text()


@on_gpu
def test_a_run_ends_with_a_model_and_the_gpus_account(device: str, tmp_path: Path) -> None:
    command, run, log = begin(device, tmp_path)
    try:
        assert command.wait() == 0, log.read_text()
    finally:
        command.kill()
    assert (run / "model" / "weights.safetensors").is_file()
    last = records(run)[-2]
    assert last["split"] == "train"
    assert bool(last["device_seconds"]) == (device == "cuda")
