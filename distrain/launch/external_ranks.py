"""Runs ranks that torchrun, srun or a JobSet started, and that meet through torch's `env://`.

The process of rank 0 checks the job, writes the run folder, trains, and sends orders to stop or
to write a checkpoint. The other ranks receive an assignment (the spec and the run folder) and
the orders from rank 0, and send it their events. All messages go through the store at
`MASTER_ADDR`, which rank 0 opens unless torchelastic's agent has opened it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from distrain.errors import ClusterError, InputError, Terminated, on_sigterm
from distrain.jobs.assignment import Assignment, Rendezvous, World
from distrain.jobs.events import (
    Event,
    RankExited,
    RankFailed,
    RankStopped,
    StopNoticed,
    TrainingStarted,
    from_json,
    to_json,
)
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_spec
from distrain.storage.retrying import first_line

if TYPE_CHECKING:
    from torch.distributed import Store

    from distrain.train.control.control import Control

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_POLL_S = 0.05
_CONNECT_S = 600.0  # timeout for connecting to rank 0, and again until it has checked the job
_EXITS_S = 10.0  # how long rank 0 waits for the others' exits after a failure
_FAILED = 100
_TERMINATED = 128 + signal.SIGTERM

log = logging.getLogger("distrain.launched")


@dataclass(frozen=True)
class Launch:
    """The rank of this process and the address where all ranks meet, as set by the launcher."""

    world: World
    meeting: Rendezvous
    has_store: bool = False  # whether the launcher keeps the store, as torchelastic's agent does
    local_rank: int = 0

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> Launch:
        """Read `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.

        If they are set, also reads `LOCAL_RANK`, `LOCAL_WORLD_SIZE` and torchelastic's variables.
        Raises `InputError` if one of the four is missing, or a value is invalid.

        >>> where = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
        >>> Launch.of_environment(where).world
        World(rank=1, num_ranks=2, ranks_per_node=1)
        """
        missing = [name for name in _NEEDED if not environ.get(name)]
        hint = "Start the command by torchrun, or set them; see docs/launchers.md."
        if missing:
            raise InputError(
                "resources.backend is env, but variables that a launcher sets are missing",
                where={"missing": ", ".join(missing)},
                hint=hint,
            )
        try:
            rank, num_ranks, port = (int(environ[n]) for n in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
            world = World(rank, num_ranks, int(environ.get("LOCAL_WORLD_SIZE", "1")))
            local_rank = int(environ.get("LOCAL_RANK", "0"))
        except ValueError as error:
            where = {name: environ[name] for name in _NEEDED}
            raise InputError(
                f"the launcher's variables are invalid: {error}", where=where, hint=hint
            ) from None
        run = environ.get("TORCHELASTIC_RUN_ID", "distrain")
        prefix = f"{run}/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        has_store = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        meeting = Rendezvous(environ["MASTER_ADDR"], port, prefix)
        return cls(world, meeting, has_store, local_rank)

    def take_own_gpu(self, environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
        """Make only the GPU of the local rank visible, since a rank uses the first visible GPU.

        Changes `CUDA_VISIBLE_DEVICES`, so it must be called before CUDA is initialised. Does
        nothing if at most one GPU is visible, or if the local rank has no GPU of its own.
        """
        import torch

        count = torch.cuda.device_count()
        visible = environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else [str(number) for number in range(count)]
        if count > 1 and self.local_rank < len(names):
            environ["CUDA_VISIBLE_DEVICES"] = names[self.local_rank]

    def join(self) -> Store:
        """Connect to the store at which the ranks meet; rank 0 opens it unless the launcher has.

        Other ranks wait for rank 0. Raises `ClusterError` if the ranks cannot meet, or if their
        `RANK` or `WORLD_SIZE` contradict each other.
        """
        from torch.distributed import PrefixStore, TCPStore

        host, port, timeout = self.meeting.host, self.meeting.port, timedelta(seconds=_CONNECT_S)
        is_master = self.world.rank == 0 and not self.has_store
        try:
            # A socket that torch opens would share its port with another process of rank 0.
            listener = _listen(port).detach() if is_master else None
            store = TCPStore(
                host,
                port,
                is_master=is_master,
                wait_for_workers=False,
                timeout=timeout,
                master_listen_fd=listener,
            )
        except (OSError, RuntimeError) as error:  # torch raises RuntimeError for network errors
            hint = "See the output of rank 0; every process needs the same MASTER_ADDR."
            if is_master:
                hint = "Another program has MASTER_PORT, or two processes have RANK=0: choose a "
                hint += "free port, and give each process its own rank."
            raise self.error(f"the ranks cannot meet: {first_line(error)}", hint) from None
        shared = PrefixStore(f"{self.meeting.prefix}/launch", store)
        try:
            self._check_world(shared)
        except ClusterError as error:
            if self.world.rank:  # rank 0 ends the job
                failed = RankFailed(self.world.rank, Reason.INVALID_SPEC.value, str(error))
                _Reporter(shared)(failed)
            raise
        return shared

    def _check_world(self, store: Store) -> None:
        """Raise `ClusterError` if another process has the same rank, or rank 0 another WORLD_SIZE.

        Ranks other than 0 wait until rank 0 has stored its WORLD_SIZE.
        """
        rank, num_ranks = self.world.rank, self.world.num_ranks
        if rank == 0:
            store.set("num_ranks", str(num_ranks))
        elif (counted := int(store.get("num_ranks"))) != num_ranks:
            raise self.error(
                f"WORLD_SIZE is {num_ranks} here, and {counted} at rank 0",
                "Start all ranks with the same WORLD_SIZE.",
            )
        if store.add(f"joined/{rank}", 1) > 1:
            raise self.error(f"two processes have RANK={rank}", "Give each process its own rank.")

    def error(self, message: str, hint: str) -> ClusterError:
        at = f"{self.meeting.host}:{self.meeting.port}"
        return ClusterError(message, where={"rank": self.world.rank, "at": at}, hint=hint)


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


@dataclass
class _Orders:
    """Reads rank 0's orders (stop, save a checkpoint) in order, and applies them to this rank."""

    store: Store
    control: Control
    taken: int = 0

    def take_new(self) -> None:
        from distrain.train.control.control import Commands

        while self.store.check([f"order/{self.taken}"]):
            line = self.store.get(f"order/{self.taken}").decode()
            self.taken += 1
            assert self.control.stop_deadline is not None
            Commands(self.control.agreement, self.control.stop_deadline).take(line)


class Gang:
    """All ranks of a launch, controlled by the process of rank 0.

    Construction opens the store where the ranks meet; raises `ClusterError` if that fails.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._store = launch.join()
        self._num_events = self._num_orders = 0
        self._changed = threading.Condition()
        self._exited = {0}
        self._ended = threading.Event()
        self._signalled = threading.Event()
        self._every_s = self._next_checkpoint_s = math.inf
        self._error: BaseException | None = None
        self.failures: list[RankFailed] = []
        self.was_stopped = False

    @property
    def culprit(self) -> RankFailed | None:
        """The first failure whose cause is not a lost peer, or else the first failure.

        `None` without failures.
        """
        causes = [one for one in self.failures if one.reason != Reason.PEER_LOST]
        return next(iter([*causes, *self.failures]), None)

    def raise_error(self) -> None:
        """Raise the error of the thread that reads the other ranks' events, if it failed."""
        if self._error is not None:
            raise self._error

    @contextmanager
    def training(
        self, spec: JobSpec, assignment: Assignment, take: Callable[[Event], None]
    ) -> Iterator[tuple[Callable[[Event], None], Control]]:
        """Context manager that sends the other ranks their assignment while rank 0 trains.

        Yields the arguments `report` and `control` of rank 0's `run_rank`. `take` is called with
        the events of all ranks. At its end, the context manager waits for the other ranks' exits:
        up to 10 seconds after a failure or a stop, otherwise up to `deadlines.collective_s`. It
        then raises `Terminated` if the ranks stopped after a signal and none failed.
        """
        from distrain.train.control.control import Control

        self._every_s = spec.checkpoint.every_s or math.inf

        def report(event: Event) -> None:
            self._note(event)
            take(event)

        timeout_s = spec.deadlines.collective_s
        control = Control.supervised(assignment, report, _leave, timeout_s=timeout_s)
        control = replace(control, look=self.raise_error)
        orders = _Orders(self._store, control)
        self._store.set("assignment", assignment.dumps())

        def watch() -> None:
            try:
                while not self._ended.wait(_POLL_S):
                    self._take_events(take)
                    self._give_orders(spec.deadlines.stop_grace_s)
                    orders.take_new()
            except BaseException as error:
                self._error = error

        thread = threading.Thread(target=watch, name="launched", daemon=True)
        thread.start()
        timeout_s = _EXITS_S
        try:
            with on_sigterm(lambda *_: self._signalled.set()):
                yield report, control
            if not (self.failures or self.was_stopped):
                timeout_s = spec.deadlines.collective_s
        finally:
            self._wait_for_exits(timeout_s)
            self._ended.set()
            thread.join(_EXITS_S)
        if self.was_stopped and not self.failures:
            raise Terminated

    def _note(self, event: Event) -> None:
        match event:
            case TrainingStarted() if self._next_checkpoint_s == math.inf:
                self._next_checkpoint_s = time.monotonic() + self._every_s
            case StopNoticed():
                self._signalled.set()
            case RankStopped():
                self.was_stopped = True
            case RankFailed():
                self.failures.append(event)
            case RankExited():
                with self._changed:
                    self._exited.add(event.rank)
                    self._changed.notify_all()

    def _take_events(self, take: Callable[[Event], None]) -> None:
        while self._store.check([key := f"event/{self._num_events + 1}"]):
            event = from_json(json.loads(self._store.get(key)))
            self._store.delete_key(key)
            self._num_events += 1
            take(event)
            self._note(event)

    def _give_orders(self, grace_s: float) -> None:
        order: dict[str, object] = {}
        if self._signalled.is_set():
            self._signalled.clear()
            order = {"op": "stop", "grace_s": grace_s}
        elif time.monotonic() >= self._next_checkpoint_s:
            self._next_checkpoint_s = time.monotonic() + self._every_s
            order = {"op": "checkpoint"}
        if order:
            order["number"] = self._num_orders
            self._store.set(f"order/{self._num_orders}", json.dumps(order))
            self._num_orders += 1

    def _wait_for_exits(self, timeout_s: float) -> None:
        num_ranks = self.launch.world.num_ranks
        with self._changed:
            self._changed.wait_for(
                lambda: self._error is not None or len(self._exited) == num_ranks, timeout_s
            )


@dataclass
class _Reporter:
    """Sends a rank's events to rank 0; ends the process at once if rank 0 is gone."""

    store: Store
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: Event) -> None:
        with self.lock, _ends_with_rank_0():
            number = self.store.add("events", 1)
            self.store.set(f"event/{number}", json.dumps(to_json(event)))


def follow(launch: Launch) -> int:
    """Train this process's rank (not 0) as assigned by rank 0; return the exit code.

    The code is 100 if the rank failed, 143 if it was stopped, else 0. If rank 0 is lost, the
    process exits at once, with the code 100. Raises `ClusterError` if rank 0 cannot be reached or
    sends no assignment, and `SpecError` if this process cannot read the spec that rank 0 sent.
    """
    from distrain.train.checkpoint.rank_store import RankStore
    from distrain.train.control.control import Control
    from distrain.train.rank.process import run_rank

    store = launch.join()
    try:
        text = RankStore(store).read("assignment", _CONNECT_S)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError for store errors
        raise launch.error(
            f"rank 0 sent no assignment: {first_line(error)}",
            "See the output of rank 0; every process needs the same MASTER_ADDR.",
        ) from None
    assignment = replace(Assignment.loads(text), world=launch.world)
    spec = parse_spec(assignment.spec)
    if spec.resources.device != "cpu":
        launch.take_own_gpu()
    report = _Reporter(store)
    rank, stopped = launch.world.rank, threading.Event()

    def forward(event: Event) -> None:
        if isinstance(event, RankStopped):
            stopped.set()
        report(event)

    control = Control.supervised(assignment, forward, _leave, timeout_s=spec.deadlines.collective_s)
    orders, signalled = _Orders(store, control), threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            with _ends_with_rank_0():
                orders.take_new()
            if signalled.is_set():
                signalled.clear()
                report(StopNoticed(rank, "SIGTERM"))

    ended = threading.Event()
    thread = threading.Thread(target=watch, name="launched", daemon=True)
    thread.start()
    with on_sigterm(lambda *_: signalled.set()):
        failure = run_rank(assignment, forward, control)
        ended.set()
        thread.join()
        code = _FAILED if failure else _TERMINATED if stopped.is_set() else 0
        report(RankExited(rank, code, stopped.is_set()))
    if failure is not None:
        log.error("%s", "\n".join(filter(None, (failure.message, failure.traceback))))
    return code


def _leave() -> None:
    os._exit(_TERMINATED)


@contextmanager
def _ends_with_rank_0() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ConnectionError) as error:
        log.error("the connection to rank 0 was lost: %s", first_line(error))
        os._exit(_FAILED)
