"""A run on a real cluster whose views are opened and closed in turns."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.jobs.states import JobState
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.prep import PrepRequest, prepare
from distrain.prep.synthetic.generate import SynthRequest, generate
from distrain.workers.local import local_cluster

ROWS = 300_000
SETTLE_S = 1.0
START_LIMIT_S = 120.0


@dataclass(frozen=True)
class Watched:
    """Rows/s of a run with and without views.

    Attributes:
        num_ranks: Number of ranks, of one thread each.
        turn_s: Seconds that views were open, or closed, at a time.
        alone: Rows/s in each turn without views.
        watched: Rows/s in each turn with all views.
    """

    num_ranks: int
    turn_s: float
    alone: tuple[float, ...]
    watched: tuple[float, ...]

    @property
    def cost_pct(self) -> list[float]:
        """The loss of rows/s with views, in percent, for each pair of neighbouring turns."""
        pairs = zip(self.alone, self.watched, strict=True)
        return [100 * (1 - watched / alone) for alone, watched in pairs]

    @property
    def median_cost_pct(self) -> float:
        """The median over all pairs."""
        return statistics.median(self.cost_pct)

    @property
    def rows_per_s_alone(self) -> float:
        """The median turn without views."""
        return statistics.median(self.alone)

    @property
    def rows_per_s_watched(self) -> float:
        """The median turn with views."""
        return statistics.median(self.watched)


def watch_training(turns: int, turn_s: float) -> Watched:
    """Train, and measure `turns` pairs of turns; the order within a pair alternates."""
    num_ranks = max(1, len(os.sched_getaffinity(0)) - 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(num_ranks, 1, "cpu", ":0") as client,
    ):
        spec = make_spec(make_data(Path(folder), client), num_ranks)
        job = JobHandle(client, new_job_id(spec.name))
        job.submit(spec, Path(folder) / job.job_id)
        wait_for(lambda: runs(job), "the job does not train")
        split = urlsplit(client.dashboard_link)
        url = f"{split.scheme}://{split.netloc}"
        with Viewing(url, client.scheduler.address, job.job_id) as viewing:
            measured = in_turns(url, job, viewing, turns, turn_s)
        raise_for_state(job.view())
        job.cancel()
        wait_for(lambda: job.view().state.is_final, "the job does not end")
    return Watched(num_ranks, turn_s, tuple(measured["close"]), tuple(measured["open"]))


class Viewing:
    """The viewers' process."""

    def __init__(self, url: str, scheduler: str, job_id: str):
        program = Path(__file__).with_name("viewers.py")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(program), url, scheduler, job_id],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )

    def __enter__(self) -> "Viewing":
        self._answer("ready")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def tell(self, word: str) -> None:
        """Open or close all views, and wait until that is done; `word` is "open" or "close"."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        self._answer(word)

    def _answer(self, expected: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(expected), f"the viewers answered {line!r}, not {expected!r}"


def in_turns(
    url: str, job: JobHandle, viewing: Viewing, turns: int, turn_s: float
) -> dict[str, list[float]]:
    """Return rows/s by turn, under `open` and `close`."""
    measured: dict[str, list[float]] = {"open": [], "close": []}
    for turn in range(turns):
        for word in ("open", "close") if turn % 2 else ("close", "open"):
            viewing.tell(word)
            time.sleep(SETTLE_S)
            rows, elapsed_s = so_far(url, job.job_id)
            time.sleep(turn_s)
            more_rows, more_s = so_far(url, job.job_id)
            measured[word].append((more_rows - rows) / (more_s - elapsed_s))
    return measured


def so_far(url: str, job_id: str) -> tuple[int, float]:
    """Return the trained rows and the wall time, as of the last report."""
    with urlopen(f"{url}/distrain/v1/jobs/{job_id}") as answer:
        document: dict[str, Any] = json.load(answer)
    return document["rows_total"], document["elapsed_s"]


def runs(job: JobHandle) -> bool:
    """Return True if the job has trained for a while."""
    view = job.view()
    raise_for_state(view)
    return view.state is JobState.RUNNING and len(view.records) > 20


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    """Poll until the condition holds.

    Raises:
        TimeoutError: It does not hold within `START_LIMIT_S` seconds.
    """
    limit_s = time.monotonic() + START_LIMIT_S
    while not condition():
        if time.monotonic() > limit_s:
            raise TimeoutError(otherwise)
        time.sleep(0.2)


def make_data(folder: Path, client: Any) -> Path:
    """Generate and prepare clicks."""
    generate(SynthRequest(folder / "raw", ROWS))
    prepare(PrepRequest((str(folder / "raw" / "*.tsv"),), folder / "data"), client)
    return folder / "data"


def make_spec(data: Path, num_ranks: int) -> JobSpec:
    """Return a job that reports several times a second and runs until it is cancelled."""
    return parse_spec(
        {
            "name": "watched",
            "data": {"train": str(data / "train")},
            "model": {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
            "train": {
                "global_batch_size": 8192 * num_ranks,
                "epochs": 10_000,
                "log_every_steps": 2,
                "lanes": num_ranks,
            },
            "resources": {"num_ranks": num_ranks, "threads_per_rank": 1, "device": "cpu"},
        }
    )
