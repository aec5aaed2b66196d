"""A rank's training thread keeps its core, and lets go of it where others use it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from dask_world import wait_for

from distrain.train.rank import own_core as module
from distrain.train.rank.own_core import (
    JUDGE_EVERY_S,
    LOOK_EVERY_S,
    REST_S,
    CoreKeeper,
    LinuxCores,
    Usage,
    own_core,
    units_of,
)

linux = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)


class FakeCores:
    """A machine on which a thread runs on `core` for a share of the time, and waits for another."""

    def __init__(self) -> None:
        self.time_s = self.run_s = self.delay_s = 0.0
        self.core, self.taken = 3, set[int]()
        self.bound: int | None = None
        self.refuses = False
        self.claimed: int | None = None
        self.freed: list[int] = []

    def pass_time(self, seconds: float, run: float, delay: float = 0.0) -> None:
        self.time_s += seconds
        self.run_s += run * seconds
        self.delay_s += delay * seconds

    def usage(self) -> Usage:
        return Usage(self.run_s, self.delay_s, self.core)

    def claim(self, core: int) -> bool:
        if core in self.taken:
            return False
        self.claimed = core
        return True

    def release(self) -> None:
        self.claimed = None

    def bind(self, core: int) -> None:
        self._maybe_refuse()
        self.bound = core

    def unbind(self) -> None:
        self._maybe_refuse()
        self.bound = None

    def unbind_others(self, core: int) -> None:
        self.freed.append(core)

    def _maybe_refuse(self) -> None:
        if self.refuses:
            raise PermissionError("not here")


def keeper_of(cores: FakeCores) -> CoreKeeper:
    return CoreKeeper(cores, lambda: cores.time_s)


def look(keeper: CoreKeeper, cores: FakeCores, run: float, delay: float = 0.0) -> None:
    cores.pass_time(LOOK_EVERY_S, run, delay)
    keeper.look()


def test_a_thread_that_computes_keeps_the_core_it_has() -> None:
    cores = FakeCores()
    keeper = keeper_of(cores)
    look(keeper, cores, run=0.4)
    assert cores.bound is None  # it waits most of the time
    cores.core = 2
    look(keeper, cores, run=0.9)
    assert cores.bound is None  # it has moved since
    look(keeper, cores, run=0.9)
    assert cores.bound == cores.claimed == 2
    look(keeper, cores, run=0.9)
    assert cores.freed == [2]


def test_another_ranks_core_is_left_to_it() -> None:
    cores = FakeCores()
    cores.taken = {3}
    keeper = keeper_of(cores)
    look(keeper, cores, run=1.0)
    assert keeper.core is None
    assert cores.bound is None
    cores.taken = set()
    look(keeper, cores, run=1.0)
    assert cores.bound == 3


def test_a_core_that_others_use_is_let_go_of_for_a_while() -> None:
    cores = FakeCores()
    keeper = keeper_of(cores)
    look(keeper, cores, run=1.0)
    assert cores.bound == 3
    while cores.bound is not None and cores.time_s < 60.0:
        look(keeper, cores, run=0.5, delay=0.5)
    assert JUDGE_EVERY_S <= cores.time_s <= JUDGE_EVERY_S + 3 * LOOK_EVERY_S
    assert cores.claimed is None
    let_go_s = cores.time_s
    while cores.bound is None and cores.time_s < 200.0:
        look(keeper, cores, run=0.9)
    assert REST_S <= cores.time_s - let_go_s <= REST_S + 2 * LOOK_EVERY_S


def test_short_delays_and_long_sleeps_change_nothing() -> None:
    cores = FakeCores()
    keeper = keeper_of(cores)
    look(keeper, cores, run=1.0)
    for _ in range(100):
        look(keeper, cores, run=0.2, delay=0.02)
    assert cores.bound == 3


def test_a_core_that_cannot_be_bound_to_is_claimed_no_more() -> None:
    cores = FakeCores()
    keeper = keeper_of(cores)
    cores.refuses = True
    with pytest.raises(PermissionError):
        look(keeper, cores, run=1.0)
    with pytest.raises(PermissionError):
        keeper.let_go()
    assert cores.claimed is None
    keeper.let_go()  # nothing is left to undo


@pytest.mark.parametrize(
    ("told", "cores", "units"),
    [
        (["0,2", "1,3", "0,2", "1,3"], range(4), [0, 1, 0, 1]),
        (["0-1", "0-1", "2-3", "2-3"], range(4), [0, 0, 2, 2]),
        (["0-1", "0-1", "2-3", "2-3"], [2, 3], [2, 3]),  # one is all there is
        (["0", "1"], range(2), [0, 1]),
        ([], range(2), [0, 1]),  # Linux does not say
    ],
)
def test_hyperthreads_of_one_core_are_one(
    tmp_path: Path, told: list[str], cores: list[int], units: list[int]
) -> None:
    for core, siblings in enumerate(told):
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings + "\n")
    assert units_of(cores, tmp_path) == dict(zip(cores, units, strict=True))


@linux
def test_a_core_is_claimed_once_and_free_again_with_its_process() -> None:
    core = 1_000_000 + os.getpid()  # no other test's
    program = (
        "from distrain.train.rank.own_core import LinuxCores; import sys\n"
        f"cores = LinuxCores(); print(cores.claim({core}), flush=True); sys.stdin.read()"
    )
    cores = LinuxCores()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not cores.claim(core)
        other.kill()
        other.wait()
        assert cores.claim(core)
    cores.release()


@linux
def test_a_busy_thread_is_bound_alone_and_free_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that it starts are bound at first, as the kernel does it, and then are not."""
    # Whatever else this machine does, and whichever ranks train on it.
    monkeypatch.setattr(module, "MOST_DELAY_SHARE", 1.0)
    monkeypatch.setattr(module, "BUSY_SHARE", 0.0)
    monkeypatch.setattr(LinuxCores, "claim", lambda cores, core: True)
    everywhere = os.sched_getaffinity(0)
    started = threading.Event()
    others: list[int] = []

    def other() -> None:
        others.append(threading.get_native_id())
        started.wait()

    with own_core():
        until_s = time.monotonic() + 60.0
        while os.sched_getaffinity(0) == everywhere and time.monotonic() < until_s:
            sum(range(10_000))
        assert len(os.sched_getaffinity(0)) == 1
        beside = threading.Thread(target=other)
        beside.start()
        wait_for(lambda: others and os.sched_getaffinity(others[0]) == everywhere, "freedom")
        assert len(os.sched_getaffinity(0)) == 1
    started.set()
    beside.join()
    assert os.sched_getaffinity(0) == everywhere


@linux
def test_a_thread_is_freed_to_where_its_process_may_run_by_then() -> None:
    """As after `taskset --all-tasks --pid`, or once a container's cores have changed."""
    thread = threading.get_native_id()
    everywhere = os.sched_getaffinity(thread)
    cores = LinuxCores()
    first, second = sorted(everywhere)[:2]

    def keep() -> None:
        cores.bind(first)
        for each in (0, thread):
            os.sched_setaffinity(each, {second})
        cores.unbind()

    try:
        keeper = threading.Thread(target=keep)
        keeper.start()
        keeper.join()
        assert os.sched_getaffinity(thread) == {second}
    finally:
        os.sched_setaffinity(thread, everywhere)


@linux
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRAIN_OWN_CORE", "0")
    before = threading.active_count()
    with own_core():
        assert threading.active_count() == before
