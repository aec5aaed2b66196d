"""A device's streams played on the host: copies are clones, and events are done when told so."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class CpuEvent:
    """Done when a test says so, or when somebody waits for it."""

    def __init__(self) -> None:
        self.done = False
        self.waits = 0

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waits += 1
        self.done = True


class CpuStreams:
    """Keeps a log of what was asked of it, each entry with the thread that asked."""

    device = torch.device("cpu")
    side = None

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.events: list[CpuEvent] = []
        self.followed: list[tuple[CpuEvent, list[Tensor]]] = []
        self.copies: list[Tensor] = []  # kept, so that no later tensor gets their memory
        self._depth = 0

    def steps(self) -> list[str]:
        return [step for step, _ in self.log]

    def note(self, step: str) -> None:
        self.log.append((step, threading.current_thread().name))

    def holds(self, tensor: Tensor) -> bool:
        own = {copy.untyped_storage().data_ptr() for copy in self.copies}
        return tensor.untyped_storage().data_ptr() in own

    def copy(self, tensor: Tensor) -> Tensor:
        assert self._depth, "a copy outside the side stream"
        self.note("copy")
        self.copies.append(tensor.detach().clone())
        return self.copies[-1]

    @contextmanager
    def on_side_stream(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def mark(self) -> CpuEvent:
        assert self._depth, "a mark outside the side stream"
        self.note("mark")
        self.events.append(CpuEvent())
        return self.events[-1]

    def follow(self, event: CpuEvent, memory: Sequence[Tensor]) -> None:
        self.note("follow")
        self.followed.append((event, list(memory)))
