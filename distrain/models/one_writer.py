"""Rank 0 writes for all, and all learn whether it could."""

import contextlib
from types import TracebackType

import torch
from torch.distributed import DistError

from distrain.embeddings import Peers


class OneWriter:
    """What one rank writes while the others bring what they hold: all succeed, or all fail.

    The ranks that do not write would wait for ever for one whose disk is full. So rank 0 says
    before each collective operation whether it goes on, and at the end whether all is written::

        with OneWriter(peers, device, collective=True) as writer:
            for ...:
                writer.go_on()
                ...             # a collective operation
                ...             # rank 0 writes, and may fail

    If rank 0 fails, its error leaves its `with`, and a `DistError` that quotes it leaves the
    others': they lost a peer, and rank 0 reports the cause. One exchange of 8 bytes for each
    `go_on`, on the backend's `device`, is the price. If the others bring nothing, `collective` is
    false: then nothing is exchanged, and rank 0's fate is its own.

    Attributes:
        writes: Whether this rank is the one that writes.
    """

    def __init__(self, peers: Peers, device: torch.device, *, collective: bool):
        self.writes = peers.rank == 0
        self._peers = peers
        self._device = device
        self._collective = collective and peers.num_ranks > 1

    def go_on(self) -> None:
        """Share whether rank 0 is well; `DistError` on the others if not."""
        if self._collective:
            problem = self._share(b"")
            if problem:
                raise DistError(f"rank 0 could not write for all: {problem.decode()}")

    def __enter__(self) -> "OneWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.go_on()
        elif self.writes and self._collective:
            # If the error was that a peer is gone, there is nobody to tell.
            with contextlib.suppress(RuntimeError):
                self._share((str(error) or type(error).__name__).encode())

    def _share(self, problem: bytes) -> bytes:
        """Rank 0's problem, on every rank; no bytes if there is none."""
        length = torch.tensor([len(problem)], dtype=torch.int64, device=self._device)
        lengths = self._peers.gather_counts(length).flatten().tolist()
        if not lengths[0]:
            return b""
        text = torch.tensor(list(problem), dtype=torch.uint8, device=self._device)
        shared = self._peers.gather_rows(text, lengths)
        return bytes(shared[0].tolist())
