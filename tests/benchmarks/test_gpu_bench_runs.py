"""`benchmarks/gpu.py` with real processes: limits, interruptions, a rehearsal."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_jobs import is_running
from waiting import until

from benchmarks.gpu import leave
from benchmarks.gpu_bench import budget, commands, run, stages

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"


def test_children_that_a_command_leaves_behind_end_too(tmp_path):
    script = "sleep 600 & echo $!; exit 3"
    done = commands.run(["sh", "-c", script], 60.0, tmp_path, tmp_path, os.environ)
    assert done.returncode == 3
    until(lambda: not is_running(int(done.stdout)))


def gpu_py(*arguments, **options):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_rehearsal_goes_all_the_way_and_says_that_it_is_one(tmp_path):
    out = tmp_path / "out"
    only = "rates|test_loader_on_gpu|elsewhere|loader.py|straight|alone"
    process = gpu_py("--rehearse", "--minutes", "12", "--only", only, "--out", str(out))
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stdout + stderr
    last = json.loads(stdout.splitlines()[-1])
    told = json.loads((out / "gpu.json").read_text())
    assert last == told["conclusion"]
    assert (last["rehearsal"], last["met"], last["finished"]) == (True, False, True)
    assert set(last["tests"]) == {"skipped"}
    outcomes = {s["name"]: s["outcome"] for s in told["stages"]}
    assert outcomes == {
        "machine rates": "ran",
        "tests/gpu/test_loader_on_gpu.py": "ran",
        "tests elsewhere": "ran",
        "experiment, straight": "ran",
        "loader.py": "ran",
        "failed tests, each alone": "not needed",
    }
    assert told["stages"][0]["rates"]["device"] == "cpu"
    assert all(test["reason"] for stage in told["stages"] for test in stage.get("tests", ()))
    assert "no figure of a GPU" in (out / "gpu.md").read_text()
    assert sorted(p.name for p in out.iterdir()) == [
        "gpu.json", "gpu.md", "loader.png", "rates.png",
    ]  # fmt: skip


@pytest.mark.release
@pytest.mark.parametrize("name", stages.EXPERIMENTS)
def test_an_experiment_runs_in_small_on_a_cpu(name):
    script = ROOT / "benchmarks" / "gpu_bench" / "experiments.py"
    command = [sys.executable, str(script), name, "--small"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert figures
    assert all(value > 0 for value in figures.values())


def test_files_of_tests_run_at_the_same_time_until_an_interruption(tmp_path, monkeypatch):
    """Each of two ends only if it is ended, and the interruption comes when both have begun."""
    monkeypatch.setattr(run, "TESTS_AT_ONCE", 2)
    monkeypatch.setattr(run.Runner, "write", lambda self: None)
    begun = [tmp_path / "a", tmp_path / "b"]
    script = "import sys, time; open(sys.argv[1], 'w').write('x'); time.sleep(600)"
    files = [
        stages.Stage(path.name, stages.TESTS, budget.Need(1, 600), ("-c", script, str(path)))
        for path in begun
    ]

    def interrupt():
        until(lambda: all(path.exists() for path in begun))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, leave)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(SystemExit):
            run.Runner(ROOT, tmp_path, {"stages": []}, time.monotonic(), 600.0).work(files)
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.release
@pytest.mark.timeout(600)
def test_every_file_with_a_test_for_a_gpu_is_found():
    command = [sys.executable, "-m", "pytest", "tests", "-m", "gpu", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if ".py::" in line]
    assert lines, done.stdout[-2000:]
    found = {path.as_posix() for path in stages.marked_files(ROOT)}
    assert {line.partition("::")[0] for line in lines} <= found
