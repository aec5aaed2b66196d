"""A recorder that is killed at any moment: the next one goes on without a gap or a repeat."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distrain.jobs.run_paths import RunPaths

ROOT = Path(__file__).parents[3]
CODE = """
import random, sys, time
from pathlib import Path
from distrain.jobs.states import JobState
from distrain.service.recorder.recorder import Recorder
from served_jobs import SPEC, job_in, settings_in, told_by, view_of

folder, seed, generation, pace_s, views_seed = sys.argv[1:]
settings = settings_in(Path(folder))
job = job_in(settings)
told = told_by(random.Random(int(seed)), 4, 400)
chance = random.Random(int(views_seed))
recorder = Recorder(settings, lambda _: int(generation), "s-1")
recorder._pictures.draw = lambda _: None
recorder.begin(job, SPEC, int(generation))
print("begun", flush=True)
place = 0
while place < len(told):
    shown = chance.randrange(1, 12)
    recorder.take(job, view_of(told[place : place + shown], num_checkpoints=place))
    place += shown
    time.sleep(float(pace_s))
end = view_of((), JobState.FAILED, attempt=4, reason="RankDied", num_checkpoints=9)
while not recorder.finish(job, end):
    time.sleep(0.002)
recorder.close()
print("finished", flush=True)
"""


def start(folder: Path, seed: int, generation: int, pace_s: float) -> subprocess.Popen[str]:
    arguments = [str(folder), str(seed), str(generation), str(pace_s), str(100 * seed + generation)]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def files(folder: Path) -> dict[str, bytes]:
    paths = RunPaths(folder / "main" / "default" / "clicks-1")
    return {path.name: path.read_bytes() for path in (paths.metrics, paths.summary, paths.spec)}


@pytest.mark.slow
def test_a_killed_recorder_leaves_what_an_undisturbed_one_leaves(tmp_path: Path) -> None:
    seed = 0
    chance = random.Random(seed)
    whole = start(tmp_path / "whole", seed, 1, 0.0)
    assert whole.communicate(timeout=120)[0] == "begun\nfinished\n"
    generation = 0
    for _ in range(3):
        generation += 1
        killed = start(tmp_path / "killed", seed, generation, 0.003)
        assert killed.stdout is not None
        assert killed.stdout.readline() == "begun\n"
        try:
            killed.wait(chance.uniform(0.0, 0.4))
        except subprocess.TimeoutExpired:
            killed.send_signal(signal.SIGKILL)
        killed.communicate()
    last = start(tmp_path / "killed", seed, generation + 1, 0.0)
    assert last.communicate(timeout=120)[0] == "begun\nfinished\n"
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    names = {path.name for path in (tmp_path / "killed/main/default/clicks-1").iterdir()}
    assert {name for name in names if not name.startswith(".")} == {
        "metrics.jsonl",
        "run.json",
        "spec.yaml",
        "summary.json",
    }
