"""A rank's process as its supervisor sees it. The rank is a script here, which starts at once."""

import asyncio
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_jobs import is_running

from distrain.jobs.assignment import Assignment, World
from distrain.jobs.run_paths import log_end
from distrain.jobs.spec import parse_spec
from distrain.runs.log_bytes import read_log
from distrain.workers import rank_process
from distrain.workers.process_state import GONE, process_state, resident_bytes
from distrain.workers.rank_process import RankProcess

DOCUMENT = {"data": {"train": "nowhere"}, "model": {"kind": "mlp"}}

PREAMBLE = """
import json, os, signal, sys, time
events = os.fdopen(int(sys.argv[1]), "w")
def tell(**event):
    events.write(json.dumps(event) + chr(10))
    events.flush()
assignment = json.loads(sys.stdin.readline())
"""


class Rank:
    """A supervised script, and what its supervisor told of it."""

    def __init__(self, folder: Path, script: str, *overrides: str):
        spec = parse_spec(DOCUMENT, overrides).model_dump(mode="json")
        assignment = Assignment("job", 2, World(), spec, str(folder))
        self.told: list[dict[str, Any]] = []
        self.log = folder / "logs" / "attempt-2" / "rank-0.log"
        program = (sys.executable, "-S", "-c", PREAMBLE + textwrap.dedent(script))
        self.process = RankProcess(assignment, self.told.append, program)

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.told]

    @property
    def pid(self) -> int:
        assert self.process._process is not None
        return self.process._process.get_pid()

    async def until_told(self, count: int = 1) -> None:
        while len(self.told) < count:
            await asyncio.sleep(0.005)


def run(rank: Rank, story: Callable[[Rank], Awaitable[None]] | None = None) -> int:
    """Run it to its end, while the story happens to it; its exit code."""

    async def both() -> int:
        running = asyncio.create_task(rank.process.run())
        if story is not None:
            await story(rank)
        return await running

    return asyncio.run(asyncio.wait_for(both(), 120))


def test_events_are_passed_on_and_what_was_printed_is_kept(tmp_path: Path) -> None:
    script = """
        tell(kind="a", attempt=assignment["attempt"])
        print("to the log")
        print("and this", file=sys.stderr)
        tell(kind="b")
        sys.exit(3)
    """
    rank = Rank(tmp_path, script)
    assert run(rank) == 3
    last = rank.told[-1]
    assert rank.told[:-1] == [{"kind": "a", "attempt": 2}, {"kind": "b"}]
    assert (last["kind"], last["exit_code"], last["stopped"]) == ("rank_exited", 3, False)
    assert sorted(last["log_tail"].splitlines()) == ["and this", "to the log"]
    assert rank.log.read_text() == last["log_tail"]


def test_a_rank_whose_event_has_no_end_is_ended_and_named(tmp_path: Path) -> None:
    script = """
        events.write('{"kind": "rank_failed", "message": "')
        while True:
            events.write("x" * 2**20)
    """
    rank = Rank(tmp_path, script)
    assert run(rank) == -signal.SIGKILL
    assert rank.kinds == ["rank_failed", "rank_exited"]
    assert "64 MiB" in rank.told[0]["message"]


@pytest.mark.slow
def test_a_filesystem_that_hangs_holds_up_neither_the_rank_nor_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is a pipe that nobody reads: whoever opens it hangs."""
    monkeypatch.setattr(rank_process, "OPEN_S", 1.0)
    monkeypatch.setattr(rank_process, "DRAIN_S", 1.0)
    script = """
        tell(kind="training_started", filler=900 * "x")
        print("to the log")
        for line in sys.stdin:
            for _ in range(3):
                tell(kind="steps_done", filler=900 * "x")
            tell(kind="heard")
            break
    """
    rank = Rank(tmp_path, script)
    path = rank.log
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    ended = threading.Event()

    def unblock_a_hanging_loop() -> None:
        if not ended.wait(30):  # instead of a test that never ends
            path.open("rb").close()

    watchdog = threading.Thread(target=unblock_a_hanging_loop)
    watchdog.start()
    try:

        async def command(rank: Rank) -> None:
            await rank.until_told()
            rank.process.command({"op": "checkpoint", "number": 1})

        assert run(rank, command) == 0
        hung = [t for t in threading.enumerate() if t.name == "distrain-files-of-rank-0"]
        assert hung, "the file was written"
    finally:
        ended.set()
        watchdog.join()
    assert rank.kinds == ["training_started", *3 * ["steps_done"], "heard", "rank_exited"]
    assert rank.told[-1]["log_tail"] == "to the log\n"
    with path.open("rb") as reader:  # the filesystem is back
        reader.read()
    for thread in hung:
        thread.join(20)
        assert not thread.is_alive()


def test_a_rank_that_is_given_up_while_it_starts_does_not_live_on(tmp_path: Path) -> None:
    async def give_up(rank: Rank) -> None:
        await asyncio.sleep(0)  # it has begun to start the process, and has none yet
        assert rank.process._process is None
        rank.process.kill()

    rank = Rank(tmp_path, "time.sleep(60)")
    exit_code = run(rank, give_up)
    assert exit_code in (0, -signal.SIGKILL)
    assert rank.kinds == ["rank_exited"]
    assert rank.told[0]["stopped"]


def test_commands_are_lines_and_a_rank_may_stop_by_itself(tmp_path: Path) -> None:
    async def command(rank: Rank) -> None:
        await rank.until_told()
        rank.process.command({"op": "checkpoint", "number": 1})
        rank.process.stop(2, 30.0)

    script = """
        tell(kind="training_started")
        for line in sys.stdin:
            words = json.loads(line)
            tell(kind="heard", words=words)
            if words["op"] == "stop":
                sys.exit(0)
    """
    rank = Rank(tmp_path, script)
    assert run(rank, command) == 0
    assert [event["words"] for event in rank.told[1:-1]] == [
        {"op": "checkpoint", "number": 1},
        {"op": "stop", "number": 2, "grace_s": 30.0},
    ]
    assert rank.told[-1]["stopped"]


@pytest.mark.parametrize(
    "case", ["ignores", "is stopped", "is told again, without a grace", "does not train yet"]
)
def test_a_rank_that_does_not_stop_is_killed_after_its_grace(tmp_path: Path, case: str) -> None:
    has_grace = case in ("ignores", "is stopped")

    async def stop(rank: Rank) -> None:
        await rank.until_told()
        if case == "is stopped":
            os.kill(rank.pid, signal.SIGSTOP)
        rank.process.stop(1, 0.3 if has_grace else 600.0)
        if case == "is told again, without a grace":
            rank.process.stop(2, 0.0)

    kind = "rank_started" if case == "does not train yet" else "training_started"
    script = f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(kind="{kind}")
        time.sleep(600)
    """
    rank = Rank(tmp_path, script)
    begin_s = time.monotonic()
    assert run(rank, stop) == -signal.SIGKILL
    assert not has_grace or time.monotonic() - begin_s >= 0.3
    assert rank.told[-1]["stopped"]


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)", "wait"])
def test_no_line_is_lost_of_a_rank_that_ends_right_after_it_printed_many(
    tmp_path: Path, end: str
) -> None:
    script = f"""
        for number in range(20_000):
            print("step", number, "x" * 100)
        sys.stdout.flush()
        tell(kind="rank_started")
        {end if end != "wait" else "time.sleep(60)"}
    """

    async def stop(rank: Rank) -> None:
        await rank.until_told()
        rank.process.stop(1, 0.0)

    rank = Rank(tmp_path, script)
    run(rank, stop if end == "wait" else None)
    printed = "".join(f"step {number} {'x' * 100}\n" for number in range(20_000))
    assert read_log(rank.log) == printed.encode()
    assert int(log_end(rank.log).read_text()) == len(printed)


def test_a_rank_that_takes_too_much_memory_is_ended_with_the_figures(tmp_path: Path) -> None:
    script = "held = bytearray(2**28); held[::4096] = bytes(2**16); time.sleep(60)"
    rank = Rank(tmp_path, script, "resources.memory_per_rank_gib=0.125")
    assert run(rank) == -signal.SIGKILL
    assert rank.kinds == ["rank_failed", "rank_exited"]
    failed, exited = rank.told
    assert failed["reason"] == "OutOfMemory"
    assert "memory_per_rank_gib is 0.125" in failed["message"]
    assert not exited["stopped"]


WRITES_STACKS = """
    import faulthandler
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    def waits_for_something():
        tell(kind="ready")
        time.sleep(60)
    waits_for_something()
"""


@pytest.mark.parametrize("state", ["sleeps", "is stopped", "has no handler yet"])
def test_a_rank_is_asked_what_it_does(tmp_path: Path, state: str) -> None:
    async def ask(rank: Rank) -> None:
        await rank.until_told()
        if state == "is stopped":
            os.kill(rank.pid, signal.SIGSTOP)
            while process_state(rank.pid).state != "T (stopped)":
                await asyncio.sleep(0.005)
        rank.process.ask_for_stacks()
        await rank.until_told(2)
        rank.process.kill()

    unready = 'tell(kind="ready"); sys.stdin.readline()'
    rank = Rank(tmp_path, unready if state == "has no handler yet" else WRITES_STACKS)
    run(rank, ask)
    taken = rank.told[1]
    assert taken["kind"] == "stacks_taken"
    if state == "is stopped":
        assert (taken["process_state"], taken["stacks"]) == ("T (stopped)", "")
    elif state == "has no handler yet":
        assert taken["stacks"] == ""
        assert process_state(2**22 + 1).state == GONE
        assert resident_bytes(2**22 + 1) == 0 < resident_bytes(os.getpid())
    else:
        assert taken["process_state"] in ("S (sleeping)", "R (running)")
        assert "waits_for_something" in taken["stacks"]
        assert taken["stacks"] in rank.log.read_text()


@pytest.mark.slow
def test_what_a_rank_started_ends_with_it_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_process, "DRAIN_S", 1.0)
    script = """
        import subprocess
        child = subprocess.Popen(["sleep", "600"], pass_fds=[int(sys.argv[1])])
        tell(kind="child", pid=child.pid)
        os._exit(0)
    """
    rank = Rank(tmp_path, script)
    assert run(rank) == 0  # `run` does not wait for as long as the child lives
    (child,) = [event["pid"] for event in rank.told if event["kind"] == "child"]
    _, alive = psutil.wait_procs([p for p in [_process(child)] if p], timeout=60)
    assert not alive
    assert not is_running(child)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def test_a_supervisor_that_is_cancelled_leaves_no_rank(tmp_path: Path) -> None:
    async def story() -> int:
        rank = Rank(tmp_path, 'tell(kind="ready"); time.sleep(60)')
        running = asyncio.create_task(rank.process.run())
        await rank.until_told()
        pid = rank.pid
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while is_running(pid):
            await asyncio.sleep(0.005)
        return pid

    assert not is_running(asyncio.run(asyncio.wait_for(story(), 120)))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    rank = Rank(tmp_path, "")
    assert run(rank) == 1
    assert rank.kinds == ["rank_failed", "rank_exited"]
    assert rank.told[0]["reason"] == "OutputError"


def test_many_ranks_leave_neither_files_nor_threads_nor_processes_behind(tmp_path: Path) -> None:
    here = psutil.Process()

    async def story() -> None:
        async def once(number: int) -> None:
            rank = Rank(tmp_path, 'tell(kind="ready"); time.sleep(60)')
            running = asyncio.create_task(rank.process.run())
            if number % 3:
                await rank.until_told()
            rank.process.stop(1, 0.0 if number % 2 else 0.01)
            await running

        await once(1)
        await asyncio.sleep(0.1)
        # Other tests of this process may leave a child that stays, as multiprocessing's tracker.
        files, threads, children = here.num_fds(), here.num_threads(), {*here.children()}
        for number in range(12):
            await once(number)
        while (
            here.num_fds() > files
            or here.num_threads() > threads
            or not children.issuperset(here.children())
        ):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(story(), 120))
