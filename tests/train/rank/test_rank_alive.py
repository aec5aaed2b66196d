"""Real rank processes that hang, are signalled, are told to save and to stop."""

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rank_processes import LONG_S, HeldRank, assignment_of
from small_jobs import make_spec
from torch.distributed import TCPStore
from waiting import until

LONG_JOB = "train={global_batch_size: 200, epochs: 100000, log_every_steps: 1000}"
# A filesystem that stops to answer after a while.
STUCK_READER = """
import threading
from distrain.loader.backends import CpuBackend
load, left = CpuBackend.load, [12]
def stuck(*args):
    left[0] -= 1
    if left[0] < 0:
        threading.Event().wait()
    return load(*args)
CpuBackend.load = stuck
"""


@pytest.fixture
def ranks() -> Iterator[list[HeldRank]]:
    held: list[HeldRank] = []
    yield held
    for rank in held:
        if rank.process.poll() is None:
            os.kill(rank.process.pid, signal.SIGCONT)
        rank.close()


def waits_for(whom: str) -> Any:
    return lambda beat: beat["waiting_for"] == whom and beat["step"] > 0


@pytest.mark.slow
def test_a_gang_whose_reader_is_stuck(
    prepared: Path, tmp_path: Path, ranks: list[HeldRank]
) -> None:
    spec = make_spec(
        prepared, LONG_JOB, "deadlines.progress_s=0.4", "evaluate.at_end=false", "data.valid=[]"
    )
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=LONG_S))
    for rank, prelude in ((0, ""), (1, STUCK_READER)):
        ranks.append(HeldRank(assignment_of(spec, tmp_path, rank, store.port), prelude))
    first, stuck = ranks

    # Everybody tells whom it waits for, also through the thread that makes routes.
    beat = stuck.wait_for("heartbeat", waits_for("reader"))
    assert beat["doing"] == "data_wait"
    step = stuck.of_kind("heartbeat")[-1]["step"]
    beat = first.wait_for("heartbeat", lambda b: waits_for("peers")(b) and b["step"] >= step)
    assert beat["progress"] in (beat["step"], beat["step"] + 1)

    # Stacks are written while the threads are stuck outside Python.
    os.kill(first.process.pid, signal.SIGUSR2)
    log = assignment_of(spec, tmp_path).paths.log(rank=0, attempt=1)
    until(lambda: "trainer.py" in log.read_text())
    assert "peers.py" in log.read_text()

    # A signal is noticed although the training thread hangs.
    os.kill(first.process.pid, signal.SIGTERM)
    assert first.wait_for("stop_noticed")["signal"] == "SIGTERM"

    # A rank that never answers keeps nobody: without a checkpoint, and while it is waited for.
    os.kill(stuck.process.pid, signal.SIGSTOP)
    first.command(op="stop", number=1, grace_s=4.0)
    assert first.end() == 0
    log = assignment_of(spec, tmp_path).paths.log(rank=0, attempt=1).read_text()
    assert "a rank did not answer in time: no checkpoint is saved on request" in log
    (stopped,) = first.of_kind("rank_stopped")
    assert (stopped["saved"], stopped["step"] >= step) == (False, True)
    assert not list((tmp_path / "checkpoints").glob("step-*"))
