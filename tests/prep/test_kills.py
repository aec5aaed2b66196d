"""Workers killed at random moments: the same bytes in the end."""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from distrain.prep import PrepRequest, prepare
from distrain.prep.progress import PrepProgress
from distrain.prep.workflow import criteo_workflow

pytestmark = pytest.mark.slow

BLOCK_BYTES = 20_000
KILLS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes, which their nannies start anew."""
    options = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, silence_logs=50, **options) as started:
        yield started


def digests(folder: Path) -> dict[str, str]:
    """What each file holds, but `prep.json`, which tells seconds and paths."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "prep.json"
    }


def test_killed_workers_change_no_byte(
    cluster: LocalCluster, tmp_path: Path, make_lines: Callable[..., list[bytes]]
) -> None:
    raw = tmp_path / "raw.tsv"
    raw.write_bytes(b"\n".join(make_lines(400)) + b"\n")
    moments: list[tuple[str, int]] = []
    draw = random.Random(7)

    def run(name: str, kill_at: tuple[str, int] | None) -> dict[str, str]:
        killed = []

        def on_progress(at: PrepProgress) -> None:
            if kill_at is None:
                moments.append((at.phase, at.tasks))
            elif (at.phase, at.tasks) == kill_at and not killed:
                killed.append(draw.choice(list(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=120)
            request = PrepRequest(
                (str(raw),), tmp_path / name, valid_fraction=0.2, block_bytes=BLOCK_BYTES,
                workflow=criteo_workflow(freq_threshold=2),
            )  # fmt: skip
            prepare(request, client, on_progress)
        assert bool(killed) == (kill_at is not None)
        return digests(tmp_path / name)

    expected = run("undisturbed", None)
    assert {phase for phase, _ in moments} == {"read", "fit", "write"}
    # Not the last moment of a phase: nothing of it is left to be done then.
    early = [moment for moment in dict.fromkeys(moments) if moment != moments[-1]]
    for number, moment in enumerate(draw.sample(early, KILLS)):
        assert run(f"out-{number}", moment) == expected, moment
