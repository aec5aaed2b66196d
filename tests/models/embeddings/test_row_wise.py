"""What a row-wise step says that it sends, against what it hands to its peers."""

import threading

import pytest
import torch
from waiting import DEADLINE_S

from distrain.models.embeddings import row_wise
from distrain.models.embeddings.kernels import dispatch as kernels
from distrain.models.embeddings.row_owners import num_rows_before

STARTS = torch.tensor([0, 40])


class Threads:
    """Ranks that are threads of this process, and count the bytes that go to others."""

    def __init__(self, num_ranks):
        self.num_ranks = num_ranks
        self.barrier = threading.Barrier(num_ranks)
        self.given = [None] * num_ranks

    def everybodys(self, rank, own):
        self.given[rank] = own
        self.barrier.wait(DEADLINE_S)
        given = list(self.given)
        self.barrier.wait(DEADLINE_S)
        return given


class CountingPeers:
    def __init__(self, threads, rank):
        self.threads, self.rank, self.num_ranks = threads, rank, threads.num_ranks
        self.sent_bytes = 0

    def exchange_counts(self, counts):
        return self.exchange_rows(counts, [1] * self.num_ranks, [1] * self.num_ranks)

    def exchange_rows(self, rows, send, receive):
        parts = torch.split(rows, list(send))
        self.sent_bytes += sum(
            part.numel() * part.element_size()
            for rank, part in enumerate(parts)
            if rank != self.rank
        )
        arrived = [theirs[self.rank] for theirs in self.threads.everybodys(self.rank, parts)]
        assert list(map(len, arrived)) == list(receive)
        return torch.cat(arrived)

    begin_exchange_rows = exchange_rows

    def wait_for_rows(self, rows):
        return rows


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("dim", [4, 7])
def test_what_it_says_is_what_it_hands_over(num_ranks, dim):
    threads = Threads(num_ranks)
    told = [None] * num_ranks

    def step(rank):
        peers = CountingPeers(threads, rank)
        draw = torch.Generator().manual_seed(rank)
        ids = torch.randint(0, 40, (60,), generator=draw, dtype=torch.int32)
        grouping = kernels.unique(ids, torch.tensor([[0], [30]]), torch.tensor([[30], [30]]))
        route = row_wise.make_route(grouping, STARTS, peers)
        weight = torch.zeros(num_rows_before(80, rank, num_ranks), dim)
        rows = route.fetch(weight, peers)
        route.begin_exchange(torch.ones_like(rows), peers)()
        told[rank] = (route.sent_bytes(4 * dim), peers.sent_bytes)

    running = [threading.Thread(target=step, args=(rank,)) for rank in range(num_ranks)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(DEADLINE_S)
    for said, handed in told:
        assert said == handed
        assert (said > 0) == (num_ranks > 1)
