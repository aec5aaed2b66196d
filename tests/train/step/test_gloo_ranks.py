"""The harness of real ranks: what they import, how they fail, and that they end with the tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gloo_ranks import on_ranks
from loaded_scripts import ORIGIN, SUPPORT, check_origin, environment_of_ranks, origin
from small_jobs import is_running
from torch import distributed as dist
from waiting import until

ROOT = Path(__file__).parents[3]


def test_what_the_tests_look_up_the_ranks_look_up_too(monkeypatch, tmp_path):
    (tmp_path / "only_here.py").write_text("WORD = 'here'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import loaded_scripts, only_here; loaded_scripts.check_origin(); print(only_here.WORD)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment_of_ranks(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout == "here\n", done.stderr


def test_ranks_that_import_another_distrain_say_so(monkeypatch):
    monkeypatch.setenv(ORIGIN, "/elsewhere/distrain")
    with pytest.raises(RuntimeError, match="the tests from /elsewhere/distrain"):
        check_origin()
    monkeypatch.setenv(ORIGIN, str(origin()))
    check_origin()
    assert environment_of_ranks()["PYTHONPATH"].startswith(str(SUPPORT))


def fails(rank, num_ranks):
    if rank == 1:
        raise ValueError("no rows")
    dist.barrier()


def hangs(rank, num_ranks):
    if rank == 1:
        time.sleep(1000)


def ends(rank, num_ranks):
    if rank == 1:
        os._exit(7)


def answers(rank, num_ranks):
    return [rank, num_ranks, os.getpid()]


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        (fails, ["rank 1", "ValueError: no rows", "in fails"]),
        (hangs, ["ranks hang: [1]", "in hangs"]),
        (ends, ["rank 1", "exit code 7"]),
    ],
)
def test_a_scenario_that_fails_is_told_with_its_rank_and_its_gang_is_replaced(scenario, told):
    before = on_ranks(2, answers)
    assert on_ranks(2, answers) == before  # the same processes
    with pytest.raises(AssertionError) as caught:
        on_ranks(2, scenario, timeout_s=1.0 if scenario is hangs else 100.0)
    assert all(text in str(caught.value) for text in told), caught.value
    after = on_ranks(2, answers)
    assert [rank[:2] for rank in after] == [[0, 2], [1, 2]]
    assert not {rank[2] for rank in before} & {rank[2] for rank in after}
    assert not any(is_running(rank[2]) for rank in before)


INTERRUPTED = """
import importlib.util, os, time
from contextlib import ExitStack
from pathlib import Path

from gloo_ranks import on_ranks

FOLDER = Path(os.environ["FOLDER"])


def sleeps(rank, num_ranks):
    (FOLDER / f"{rank}.part").write_text(f"{os.getpid()} {os.getppid()}")
    (FOLDER / f"{rank}.part").rename(FOLDER / f"{rank}.pids")
    time.sleep(1000)


def test_that_is_interrupted():
    with ExitStack() as stack:
        if importlib.util.find_spec("psycopg") is not None:
            import real_postgres
            if real_postgres.why_absent() is None:
                database = stack.enter_context(real_postgres.Postgres())
                (FOLDER / "database").write_text(str(database.folder))
        on_ranks(2, sleeps)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_of_tests_leaves_no_process_and_nothing_in_memory(how, tmp_path):
    (tmp_path / "test_sleeps.py").write_text(INTERRUPTED)
    words = ("-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-n1", "-p", "no:cacheprovider")
    with (tmp_path / "log").open("w") as log:
        tests = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words, tmp_path / "test_sleeps.py"],
            cwd=ROOT,
            env=os.environ | {"FOLDER": str(tmp_path), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: tests.poll() is not None or len(list(tmp_path.glob("*.pids"))) == 2, "ranks")
        assert tests.poll() is None, (tmp_path / "log").read_text()
    finally:
        os.killpg(tests.pid, how)  # as a terminal's Ctrl-C, also to xdist's process
        tests.wait(120)
    started = {int(pid) for file in tmp_path.glob("*.pids") for pid in file.read_text().split()}
    assert len(started) == 3
    until(lambda: not any(map(is_running, started)), "the ranks and their server end")
    if (told := tmp_path / "database").exists():
        until(lambda: not Path(told.read_text()).exists(), "the database's folder is removed")
