"""CUDA graphs: a step's kernels recorded once, then launched together."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class StepGraph(Protocol):
    """Records what a function does to tensors, and does it again."""

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Record a call, which does nothing yet."""

    def replay(self) -> tuple[Tensor, ...]:
        """Do what was recorded, with what is in its tensors now; gives the call's result."""


class CudaStepGraph:
    """A CUDA graph. Graphs that never run at the same time share one pool of memory.

    Args:
        pool: From `torch.cuda.graph_pool_handle()`.
    """

    def __init__(self, pool: tuple[int, int] | None = None):
        self._graph = torch.cuda.CUDAGraph()
        self._pool = pool
        self._result: tuple[Tensor, ...] = ()

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Record a call; what it would wait for, or read back, is an error of CUDA."""
        # Other threads, such as the loader's, may go on allocating meanwhile.
        with torch.cuda.graph(
            self._graph,
            pool=self._pool,  # type: ignore[arg-type]
            capture_error_mode="thread_local",
        ):
            self._result = run()

    def replay(self) -> tuple[Tensor, ...]:
        """Launch it; the result's tensors are overwritten by the next replay."""
        self._graph.replay()
        return self._result
