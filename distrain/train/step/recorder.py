"""Records calls as CUDA graphs and replays them, at the same calls on every rank.

NCCL requires that an operation is recorded on all ranks or on none. A call's `key` is the same on
all ranks, and so is the sequence of keys. Whether a call is recorded, replayed or run directly
depends on this sequence alone, never on the rank's own rows.
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from distrain.models.embeddings.peers import Peers
from distrain.train.timing.phases import PEERS, waiting

WARM_UP_STEPS = 3
"""The number of calls with one key that run before one is recorded, so that libraries warm up."""

MOST_GRAPHS = 48
"""Maximum number of graphs.

A step with a new combination of the ranks' numbers of rows needs two: one that requests rows from
their owners, and one that trains. With 24 lanes (`train.lanes`), there are at most 24 combinations.
"""

_log = logging.getLogger("distrain")

Run = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


class StepGraph(Protocol):
    """A recording of a function's operations on tensors."""

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None: ...

    def replay(self) -> tuple[Tensor, ...]:
        """Repeat the recording with its tensors' current values; return the call's result."""

    def release(self) -> None:
        """Free the recording's resources on the device and in NCCL's communicators."""


class CudaStepGraph:
    """A CUDA graph. Graphs that never run at the same time share one pool of memory."""

    def __init__(self, pool: tuple[int, int] | None = None):
        self._graph = torch.cuda.CUDAGraph()
        self._pool = pool
        self._result: tuple[Tensor, ...] = ()

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Record a call; raises `RuntimeError` if it waits for the device or reads from it."""
        stream = torch.cuda.current_stream()
        # An older graph that is freed during the recording would make it fail, so garbage is
        # collected before; torch does not do so.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            # Other threads, such as the loader's, may allocate memory meanwhile.
            with torch.cuda.graph(
                self._graph,
                pool=self._pool,  # type: ignore[arg-type]
                capture_error_mode="thread_local",
            ):
                self._result = run()
        except RuntimeError:
            self._forget()
            raise
        finally:  # if a recording fails, torch does not restore the current stream
            torch.cuda.set_stream(stream)
            if collects:
                gc.enable()

    def _forget(self) -> None:
        """Inform torch's allocator and generator that a failed recording has ended.

        torch does not do so. The allocator would never free memory that another stream has used,
        and the generator would no longer generate numbers.
        """
        device = torch.cuda.current_device()
        if self._pool is not None:
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, self._pool)
        generator = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(generator.clone_state())

    def replay(self) -> tuple[Tensor, ...]:
        """Launch the graph; the next replay overwrites the result's tensors."""
        self._graph.replay()
        return self._result

    def release(self) -> None:
        self._result = ()
        self._graph.reset()


class _Recorded(NamedTuple):
    graph: StepGraph
    inputs: tuple[Tensor, ...]


class Recorder:
    """Runs calls of fixed shapes: the first few directly, later ones by replaying a recording.

    Args:
        peers: The ranks that make the same calls in the same order.
        gives_up: Whether, if a recording fails, later calls run directly on all ranks, with a
            warning; otherwise the error is raised.
        make_graph: Creates graphs; tests pass another one than CUDA's.

    Attributes:
        replays: Calls that were replayed.
    """

    def __init__(
        self, peers: Peers, gives_up: bool, make_graph: Callable[[], StepGraph] | None = None
    ):
        self.replays = 0
        self._peers = peers
        self._gives_up = gives_up
        self._gave_up = False
        self._make_graph = self._cuda_graph if make_graph is None else make_graph
        self._pool: tuple[int, int] | None = None
        self._seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, _Recorded] = {}
        self._memory: dict[tuple[str, int], Tensor] = {}

    def call(
        self, name: str, key: Hashable, inputs: Sequence[Tensor], run: Run
    ) -> tuple[Tensor, ...]:
        """Call `run(inputs)`, or replay its recording, and return the result.

        A collective operation if `run` is one. The next call of the same name overwrites a replayed
        result.

        Args:
            name: Identifies the operation; calls of one name have the same number and types of
                inputs.
            key: With `name`, determines the shapes of the inputs on every rank.
            inputs: Contiguous tensors with all values that change from call to call, except for
                state of `run` itself.
        """
        recorded = self._recorded_for(name, key, inputs, run)
        if recorded is None:
            return run(inputs)
        _copy(recorded.inputs, inputs)
        self.replays += 1
        # If many replays are queued, a replay waits for earlier ones, and these for other ranks.
        with waiting(PEERS) if self._peers.num_ranks > 1 else nullcontext():
            return recorded.graph.replay()

    def forget(self) -> None:
        """Release all recordings, such as before shapes change; calls warm up again."""
        for recorded in self._recorded.values():
            recorded.graph.release()
        self._recorded.clear()
        self._seen.clear()
        self._memory.clear()

    def _recorded_for(
        self, name: str, key: Hashable, inputs: Sequence[Tensor], run: Run
    ) -> _Recorded | None:
        """Return the recording for a key, made now if it is due; `None` if there is none.

        It is due after `WARM_UP_STEPS` calls with this name and key, unless there are `MOST_GRAPHS`
        recordings already, or a recording has failed.
        """
        named = (name, key)
        if named in self._recorded or self._gave_up:
            return self._recorded.get(named)
        self._seen[named] += 1
        if self._seen[named] <= WARM_UP_STEPS or len(self._recorded) == MOST_GRAPHS:
            return None
        held = tuple(self._held(name, number, given) for number, given in enumerate(inputs))
        recorded = _Recorded(self._make_graph(), held)
        if not self._record(recorded, run):
            return None
        self._recorded[named] = recorded
        return recorded

    def _record(self, recorded: _Recorded, run: Run) -> bool:
        """Record a call on all ranks or on none; return True if all ranks recorded it.

        A collective operation. If a rank failed, nothing is recorded from then on, and a warning is
        logged; or the rank's error is raised, if the recorder does not give up (`_gives_up`).
        """
        problem: RuntimeError | None = None
        try:
            recorded.graph.record(lambda: run(recorded.inputs))
        except RuntimeError as error:
            if not self._gives_up:
                raise
            problem = error
        (failed,) = self._peers.all_reduce_max([int(problem is not None)])
        if not failed:
            return True
        self._gave_up = True
        _log.warning(
            "the step cannot be recorded as a CUDA graph, and its kernels are launched one by "
            "one: %s. Set train.cuda_graph to false.",
            "another rank could not" if problem is None else str(problem).strip().split("\n")[0],
        )
        return False

    def _held(self, name: str, number: int, given: Tensor) -> Tensor:
        """Return the memory from which recordings read input `number` of the operation `name`.

        It holds a tensor like `given`. All recordings of one name share it, since only one runs at
        a time.
        """
        memory = self._memory.get((name, number))
        if memory is None or len(memory) < given.numel():
            memory = self._memory[name, number] = torch.empty_like(given).view(-1)
        return memory[: given.numel()].view(given.shape)

    def _cuda_graph(self) -> StepGraph:
        # After a pool's last graph, torch cannot record into it while any of its memory, such as
        # the last result's, is in use.
        if not self._recorded:
            self._pool = torch.cuda.graph_pool_handle()
        return CudaStepGraph(self._pool)


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy all tensors, with one kernel launch for each item size."""
    by_size: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        to, of = by_size.setdefault(target.element_size(), ([], []))
        kind = {4: torch.int32, 8: torch.int64}.get(target.element_size(), target.dtype)
        to.append(target.view(kind))
        of.append(source.view(kind))
    for to, of in by_size.values():
        torch._foreach_copy_(to, of)
