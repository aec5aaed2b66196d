"""Keeps a rank's training thread on one core, while nothing else wants that core.

Ranks on CPUs wait for each other in every step. Linux wakes a thread near the one that woke it,
which for a rank is often the core of another rank; until its balancing separates the two, one core
idles, and then a rank's caches are cold. So a thread that computes is bound to the core that the
kernel had given it, as MPI's launchers bind their ranks, and let go of when others use that core.
"""

import errno
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

LOOK_EVERY_S = 0.25
BUSY_SHARE = 0.5
"""Of the time between two looks: who computes less is not bound."""
JUDGE_EVERY_S = 5.0
MOST_DELAY_SHARE = 0.2
"""Of a bound thread's running and waiting to run, what it may wait for its core."""
REST_S = 60.0
"""From letting go of a core until another is looked for."""

log = logging.getLogger("distrain.rank")


class Usage(NamedTuple):
    """What a thread has had of the cores since it began.

    Attributes:
        run_s: Seconds that it ran.
        delay_s: Seconds that it waited for a core, ready to run.
        core: Where it ran last.
    """

    run_s: float
    delay_s: float
    core: int


class Cores(Protocol):
    """The machine, as one thread sees it."""

    def usage(self) -> Usage:
        """The thread's so far."""

    def claim(self, core: int) -> bool:
        """Make a core this thread's own, unless it, or what shares its units, is another rank's."""

    def release(self) -> None:
        """Give the claimed core back."""

    def bind(self, core: int) -> None:
        """Let the thread run on this core alone."""

    def unbind(self) -> None:
        """Let the thread run on all of the process's cores."""

    def unbind_others(self, core: int) -> None:
        """The same for all other threads of the process that are bound to this core alone."""


class CoreKeeper:
    """Decides which core a thread keeps, and for how long.

    Args:
        cores: The machine.
        now_s: A clock that only goes forward, in seconds.
    """

    def __init__(self, cores: Cores, now_s: Callable[[], float] = time.monotonic):
        self._cores, self._now_s = cores, now_s
        self.core: int | None = None
        self._since_s, self._before = now_s(), cores.usage()
        self._rests_until_s = self._since_s

    def look(self) -> None:
        """Bind the thread, let go of it, or leave it: to be called every `LOOK_EVERY_S`."""
        if self.core is None:
            self._maybe_bind()
        else:
            # A thread begins with the binding of the one that started it.
            self._cores.unbind_others(self.core)
            if self._now_s() - self._since_s >= JUDGE_EVERY_S:
                self._judge(self.core)

    def let_go(self) -> None:
        """Undo the binding, if there is one."""
        if self.core is not None:
            core, self.core = self.core, None
            self._cores.release()  # first: what follows may be refused
            self._cores.unbind()
            self._cores.unbind_others(core)

    def _maybe_bind(self) -> None:
        before, elapsed_s = self._before, self._restart()
        usage = self._before
        computes = usage.run_s - before.run_s > BUSY_SHARE * elapsed_s
        if self._since_s < self._rests_until_s or not computes or usage.core != before.core:
            return
        if self._cores.claim(usage.core):
            self.core = usage.core
            self._cores.bind(usage.core)
            log.info("the training thread keeps core %d", self.core)

    def _judge(self, core: int) -> None:
        before = self._before
        self._restart()
        run_s = self._before.run_s - before.run_s
        delay_s = self._before.delay_s - before.delay_s
        if delay_s > MOST_DELAY_SHARE * (run_s + delay_s):
            self.let_go()
            self._rests_until_s = self._since_s + REST_S
            told = "the training thread lets go of core %d: it waited %.1f s for it and ran %.1f s"
            log.info(told, core, delay_s, run_s)

    def _restart(self) -> float:
        """Begin a new span of time; returns how long the last one was, in seconds."""
        now_s = self._now_s()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        self._before = self._cores.usage()
        return elapsed_s


class LinuxCores:
    """`Cores` of the thread that makes this, by Linux's `/proc`; another one is to call it.

    The other one is never bound: so what the kernel lets it run on is what the thread may run on,
    also once somebody has moved the process to other cores.

    A claim is a name of an abstract socket: the kernel frees it when the process ends, however that
    is. Ranks in different network namespaces do not see each other's, but they see their delays.
    """

    def __init__(self) -> None:
        self._thread = threading.get_native_id()
        self._tasks = Path(f"/proc/{os.getpid()}/task")
        self._units = units_of(os.sched_getaffinity(self._thread))
        self._claim: socket.socket | None = None

    @property
    def count(self) -> int:
        """How many cores the thread may run on."""
        return len(os.sched_getaffinity(self._thread))

    def usage(self) -> Usage:
        """See `Cores`."""
        task = self._tasks / str(self._thread)
        run_ns, delay_ns, _ = (task / "schedstat").read_text().split()
        # Behind the command's name, which may hold anything: field 3 of proc(5); 39 is the core.
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return Usage(int(run_ns) / 1e9, int(delay_ns) / 1e9, int(fields[39 - 3]))

    def claim(self, core: int) -> bool:
        """See `Cores`."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0distrain-core-{self._units.get(core, core)}")
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        self._claim = claim
        return True

    def release(self) -> None:
        """See `Cores`."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def bind(self, core: int) -> None:
        """See `Cores`."""
        os.sched_setaffinity(self._thread, {core})

    def unbind(self) -> None:
        """See `Cores`."""
        os.sched_setaffinity(self._thread, os.sched_getaffinity(0))

    def unbind_others(self, core: int) -> None:
        """See `Cores`."""
        for task in self._tasks.iterdir():
            thread = int(task.name)
            if thread == self._thread:
                continue
            try:
                if os.sched_getaffinity(thread) == {core}:
                    os.sched_setaffinity(thread, os.sched_getaffinity(0))
            except ProcessLookupError:  # it has ended
                continue


def units_of(
    cores: Collection[int], folder: Path = Path("/sys/devices/system/cpu")
) -> dict[int, int]:
    """By core, the first of the hyperthreads that share its units; itself where all share them.

    Threads that are bound to such slow each other down, and no delay tells of it.

    Args:
        folder: Where Linux tells of them; a core of which it does not is alone.
    """
    units = {}
    for core in cores:
        try:
            told = (folder / f"cpu{core}/topology/thread_siblings_list").read_text()
        except OSError:
            told = ""
        first = re.match(r"\d+", told)
        units[core] = core if first is None else int(first[0])
    return units if len(set(units.values())) > 1 else {core: core for core in cores}


@contextmanager
def own_core() -> Iterator[None]:
    """Let the calling thread keep its core inside the `with` statement.

    Does nothing on other systems than Linux, with one core, or with `DISTRAIN_OWN_CORE=0`.
    """
    if sys.platform != "linux" or os.environ.get("DISTRAIN_OWN_CORE") == "0":
        yield
        return
    cores = LinuxCores()
    if cores.count < 2:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_keep, args=(cores, ended), name="own-core", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _keep(cores: LinuxCores, ended: threading.Event) -> None:
    try:
        keeper = CoreKeeper(cores)
        try:
            while not ended.wait(LOOK_EVERY_S):
                keeper.look()
        finally:
            keeper.let_go()
    except OSError as error:  # training goes on without
        log.info("the training thread keeps no core: %s", error)
