"""Records calls as CUDA graphs and replays them, at the same calls on every rank.

NCCL wants an operation recorded on all ranks or on none. A call's `key` is the same on all ranks,
and so is the sequence of keys. Whether a call is recorded, replayed or made as it is follows from
that sequence alone, never from what a rank sees of its own rows.
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
"""Calls of a key before it is recorded: libraries set themselves up in the first ones."""

MOST_GRAPHS = 48
"""Keys with a graph. With 24 lanes, the ranks' numbers of rows come in at most 24 combinations,
and a step takes two graphs: one asks owners for rows, one trains."""

_log = logging.getLogger("distrain")

Run = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


class StepGraph(Protocol):
    """A recording of what a function does to tensors."""

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None: ...

    def replay(self) -> tuple[Tensor, ...]:
        """Repeat the recording on its tensors' present values; gives the call's result."""

    def release(self) -> None:
        """Free what the recording holds of the device and of NCCL's communicators."""


class CudaStepGraph:
    """A CUDA graph. Graphs that never run at the same time share one pool of memory."""

    def __init__(self, pool: tuple[int, int] | None = None):
        self._graph = torch.cuda.CUDAGraph()
        self._pool = pool
        self._result: tuple[Tensor, ...] = ()

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Record a call; a wait or a read-back in it is an error of CUDA."""
        stream = torch.cuda.current_stream()
        # Objects of an older graph that are freed amid a recording end it; torch collects none.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            # Other threads, such as the loader's, may allocate meanwhile.
            with torch.cuda.graph(
                self._graph,
                pool=self._pool,  # type: ignore[arg-type]
                capture_error_mode="thread_local",
            ):
                self._result = run()
        except RuntimeError:
            self._forget()
            raise
        finally:  # torch leaves its own stream current where a recording fails
            torch.cuda.set_stream(stream)
            if collects:
                gc.enable()

    def _forget(self) -> None:
        """Let torch's allocator and generator know that a failed recording is over.

        torch tells neither. The allocator would free nothing more that another stream has used, and
        the generator would refuse to draw.
        """
        device = torch.cuda.current_device()
        if self._pool is not None:
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, self._pool)
        generator = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(generator.clone_state())

    def replay(self) -> tuple[Tensor, ...]:
        """Launch it; the result's tensors are overwritten by the next replay."""
        self._graph.replay()
        return self._result

    def release(self) -> None:
        self._result = ()
        self._graph.reset()


class _Recorded(NamedTuple):
    graph: StepGraph
    inputs: tuple[Tensor, ...]


class Recorder:
    """Makes calls of fixed shapes: the first few as they are, later ones as a recording.

    Args:
        peers: The ranks that make the same calls in the same order.
        gives_up: Whether a call that cannot be recorded is made as it is from then on, on all
            ranks, with a warning; else the error is raised.
        make_graph: Makes graphs; another one than CUDA's is for tests.

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
        """`run(inputs)`; collective where `run` is.

        The next call of the same name overwrites the result, if that was replayed.

        Args:
            name: What is done: calls of one name have as many inputs, of the same types.
            key: With `name`, all that decides the inputs' shapes, on every rank.
            inputs: Contiguous tensors, all that changes from call to call but for what `run` holds.
        """
        recorded = self._recorded_for(name, key, inputs, run)
        if recorded is None:
            return run(inputs)
        _copy(recorded.inputs, inputs)
        self.replays += 1
        # A replay waits for earlier ones where too many are queued, and these for other ranks.
        with waiting(PEERS) if self._peers.num_ranks > 1 else nullcontext():
            return recorded.graph.replay()

    def forget(self) -> None:
        """Release all recordings, such as for other shapes; calls warm up again."""
        for recorded in self._recorded.values():
            recorded.graph.release()
        self._recorded.clear()
        self._seen.clear()
        self._memory.clear()

    def _recorded_for(
        self, name: str, key: Hashable, inputs: Sequence[Tensor], run: Run
    ) -> _Recorded | None:
        """The recording for a key, if there is one or it is time to make one."""
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
        """Record on all ranks or on none."""
        problem: RuntimeError | None = None
        try:
            recorded.graph.record(lambda: run(recorded.inputs))
        except RuntimeError as error:
            if not self._gives_up:
                raise
            problem = error
        (failed,) = self._peers.largest([int(problem is not None)])
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
        """An input's memory, which recordings of one name share: only one runs at a time."""
        memory = self._memory.get((name, number))
        if memory is None or len(memory) < given.numel():
            memory = self._memory[name, number] = torch.empty_like(given).view(-1)
        return memory[: given.numel()].view(given.shape)

    def _cuda_graph(self) -> StepGraph:
        # A pool ends with its last graph: torch refuses to record into it while any of its memory
        # is still in use, such as the last result's.
        if not self._recorded:
            self._pool = torch.cuda.graph_pool_handle()
        return CudaStepGraph(self._pool)


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy all tensors, those of one item size by one launch."""
    by_size: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        to, of = by_size.setdefault(target.element_size(), ([], []))
        kind = {4: torch.int32, 8: torch.int64}.get(target.element_size(), target.dtype)
        to.append(target.view(kind))
        of.append(source.view(kind))
    for to, of in by_size.values():
        torch._foreach_copy_(to, of)
