"""`benchmarks/gpu.py` with real processes: limits, interruptions, a rehearsal."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from benchmarks.gpu_bench import budget, commands, run, stages

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"


def lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_children_that_a_command_leaves_behind_end_too(tmp_path):
    script = "sleep 600 & echo $!; exit 3"
    done = commands.run(["sh", "-c", script], 60.0, tmp_path, tmp_path, os.environ)
    assert done.returncode == 3
    until(lambda: not lives(int(done.stdout)))


def stage(name, code, kind="benchmark", least_s=1.0):
    command = ("-c", code, stages.WORK)
    return stages.Stage(name, kind, budget.Need(least_s, 60.0), command, "b.py")


GOOD = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "deep").mkdir()
(folder / "deep" / "trace.txt").write_text("what it left")
(folder / "records.jsonl").write_text('{"n": 1}\\n')
print("a table")
print(json.dumps({"figures": {"x": {"value": 1, "goal": ">= 2", "met": False}}, "met": False}))
"""


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "pictures", lambda document: {})
    out = tmp_path / "out"
    known = {
        "rehearsal": False, "finished": False, "began": "now", "command": "x", "minutes": 1.0,
        "versions": {}, "missing": {}, "driver": {"module": None, "nvidia_smi": []},
        "host": dict.fromkeys(("cpu", "cores", "system", "commit", "loader_kernel"), "?")
        | {"tables_kernels": "C", "memory_bytes": 2**30, "memory_free_bytes": 2**29},
        "torch": {"cuda": None, "devices": []}, "stages": [],
    }  # fmt: skip
    return run.Runner(tmp_path, out, known, time.monotonic(), 60.0), out


def test_every_stage_is_told_with_its_end(runner, capsys):
    stages = [
        stage("good", GOOD),
        stage("bad", "print('so far'); raise SystemExit(4)"),
        stage("too long", "pass", least_s=1e6),
    ]
    runner[0].work(stages)
    told = json.loads((runner[1] / "gpu.json").read_text())
    outcomes = {s["name"]: (s["outcome"], s["reason"]) for s in told["stages"]}
    assert outcomes["good"] == ("ran", "")
    assert outcomes["bad"] == ("failed", "it ended with code 4")
    assert outcomes["too long"][0] == "skipped"
    assert re.match(r"it needs 1000000 s at least, \d+ s were left", outcomes["too long"][1])
    good = told["stages"][0]
    assert (good["records"], good["files"]) == ([{"n": 1}], ["deep-trace.txt"])
    assert (runner[1] / "deep-trace.txt").read_text() == "what it left"
    assert told["finished"]
    conclusion = told["conclusion"]
    assert (conclusion["missed"], conclusion["met"]) == (["b.py: x"], False)
    assert conclusion["failed_stages"] == ["bad"]
    assert conclusion["skipped_stages"] == ["too long"]
    assert "| x | 1 | >= 2 | **missed** |" in (runner[1] / "gpu.md").read_text()
    assert "good: ran, " in capsys.readouterr().out
    assert sorted(p.name for p in runner[1].iterdir()) == ["deep-trace.txt", "gpu.json", "gpu.md"]


def gpu_py(*arguments, **options):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_rehearsal_goes_all_the_way_and_says_that_it_is_one(tmp_path):
    out = tmp_path / "out"
    only = "rates|test_loader_on_gpu|elsewhere|loader.py|pieces|alone"
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
        "loader.py": "ran",
        "experiment, pieces": "ran",
        "failed tests, each alone": "not needed",
    }
    assert told["stages"][0]["rates"]["device"] == "cpu"
    assert all(test["reason"] for stage in told["stages"] for test in stage.get("tests", ()))
    assert "no figure of a GPU" in (out / "gpu.md").read_text()
    assert sorted(p.name for p in out.iterdir()) == [
        "gpu.json", "gpu.md", "loader.png", "rates.png",
    ]  # fmt: skip


@pytest.mark.release
@pytest.mark.timeout(600)
def test_every_file_with_a_test_for_a_gpu_is_found():
    command = [sys.executable, "-m", "pytest", "tests", "-m", "gpu", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if ".py::" in line]
    assert lines, done.stdout[-2000:]
    found = {path.as_posix() for path in stages.marked_files(ROOT)}
    assert {line.partition("::")[0] for line in lines} <= found
