"""Peers whose waits for each other show."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from distrain.embeddings import Peers
from distrain.train.whereabouts import PEERS, waiting


@dataclass(frozen=True)
class ToldPeers(Peers):
    """The same collective operations; while in one, the thread is noted as waiting for peers."""

    def gather_rows_at_first(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        """See `Peers`."""
        with waiting(PEERS):
            return super().gather_rows_at_first(rows, lengths)

    def exchange_rows(self, rows: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """See `Peers`."""
        with waiting(PEERS):
            return super().exchange_rows(rows, send, receive)

    def count_up(self, counts: Tensor) -> Tensor:
        """See `Peers`."""
        with waiting(PEERS):
            return super().count_up(counts)

    def _all_gather(self, rows: Tensor) -> Tensor:
        if self.num_ranks == 1:
            return super()._all_gather(rows)
        with waiting(PEERS):
            return super()._all_gather(rows)
