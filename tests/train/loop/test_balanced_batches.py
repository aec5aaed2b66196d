"""Rows dealt by the lengths of their lists: the rows of a step stay, and ranks get as much work."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import numpy as np
import torch
from event_rows import event_batch
from hypothesis import given, settings, strategies as st
from small_jobs import make_spec, write_prepared
from torch import Tensor
from wording import Wording

from distrain.errors import SpecError
from distrain.loader.batch import Batch
from distrain.models.embeddings import Peers
from distrain.train.audit.audit import row_hashes
from distrain.train.data.inputs import check_inputs
from distrain.train.loop.balanced_batches import BalancedBatches, even_owners
from distrain.train.timing.phases import PEERS, READER, wait_of, waiting


@dataclass(frozen=True)
class ThreadPeers(Peers):
    """Ranks that are threads, and exchange by a board."""

    board: dict[int, Any] = field(default_factory=dict)
    barrier: Barrier = field(default_factory=lambda: Barrier(1))

    def _posted(self, value: Any) -> list[Any]:
        assert wait_of(get_ident()) == PEERS  # and not the reader, which `balanced` waits for
        self.board[self.rank] = value
        self.barrier.wait()
        found = [self.board[rank] for rank in range(self.num_ranks)]
        self.barrier.wait()
        return found

    def _all_gather(self, rows: Tensor) -> Tensor:
        return torch.stack(self._posted(rows))

    def _all_to_all(self, received: Tensor, rows: Tensor, *counts: Any) -> None:
        receive, send = counts
        sent = self._posted(rows.split(send))
        parts = [of_rank[self.rank] for of_rank in sent]
        assert [len(part) for part in parts] == receive
        received.copy_(torch.cat(parts))


class Given:
    def __init__(self, batches: Sequence[Batch]):
        self._batches = iter(batches)

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None: ...


def balanced(of_ranks: Sequence[Sequence[Batch]], **options: Any) -> list[list[Batch]]:
    """What each rank gets of its and the others' batches, step by step."""
    board: dict[int, Any] = {}
    barrier = Barrier(len(of_ranks), timeout=60)
    options = {"limits": {}, "compared_lists": [], **options}

    def live(rank: int) -> list[Batch]:
        peers = ThreadPeers(rank, len(of_ranks), board=board, barrier=barrier)
        batches = BalancedBatches(Given(of_ranks[rank]), peers, **options)
        with waiting(READER):
            return [next(batches) for _ in of_ranks[rank]]

    with ThreadPoolExecutor(len(of_ranks)) as pool:
        return list(pool.map(live, range(len(of_ranks))))


def loaded(rows: int, seed: int, most: int = 6) -> Batch:
    """Rows of events, as a loader makes them."""
    batch = event_batch(rows, seed, most)
    assert batch.label is not None
    return replace(batch, labels=batch.label[:, None], label_names=("clicked",))


def hashes_of(batches: Sequence[Batch]) -> Counter[int]:
    return Counter(value for batch in batches for value in row_hashes(batch).tolist())


@settings(deadline=None, max_examples=20)
@given(
    rows=st.lists(st.integers(0, 9), min_size=2, max_size=4),
    seed=st.integers(0, 99),
    most=st.sampled_from([0, 1, 6]),
    weighted=st.booleans(),
)
def test_no_row_of_a_step_is_lost_or_changed(
    rows: list[int], seed: int, most: int, weighted: bool
) -> None:
    batches = [loaded(count, seed + rank, most) for rank, count in enumerate(rows)]
    if weighted:
        batches = [replace(one, weight=torch.rand(one.num_rows)) for one in batches]
    found = [step for (step,) in balanced([[one] for one in batches])]
    assert hashes_of(found) == hashes_of(batches)
    counts = [batch.num_rows for batch in found]
    assert max(counts) - min(counts) <= 1
    if weighted:
        weights = [torch.cat([one.weight for one in some]) for some in (batches, found)]  # type: ignore[misc]
        assert torch.equal(*(one.sort().values for one in weights))
    for batch in found:
        assert batch.categorical_names == batches[0].categorical_names
        assert {len(column.offsets) for column in batch.lists.values()} == {batch.num_rows + 1}


@given(
    work=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=60),
    num_ranks=st.integers(1, 8),
)
def test_ranks_get_as_many_rows_and_no_more_work_than_a_heaviest_row_apart(
    work: list[tuple[int, int]], num_ranks: int
) -> None:
    array = np.array(work, np.int64).reshape(-1, 2)
    owners = even_owners(array, num_ranks)
    counts = np.bincount(owners, minlength=num_ranks)
    assert counts.max() - counts.min() <= 1
    shares = (array / np.maximum(array.sum(0), 1)).sum(1)
    loads = np.bincount(owners, shares, num_ranks)
    assert loads.max() - loads.min() <= shares.max(initial=0) + 1e-9


def test_lists_count_as_far_as_the_model_reads_them() -> None:
    """Where the newest events alone are read, longer histories are no more work."""
    batches = [loaded(40, rank) for rank in range(2)]
    most = dict.fromkeys(batches[0].lists, 0)
    found = [step for (step,) in balanced([[one] for one in batches], limits=most)]
    # All rows are alike: they are dealt in turn.
    rows = [row_hashes(batch) for batch in batches]
    assert row_hashes(found[0]).tolist() == torch.cat([rows[0][::2], rows[1][::2]]).tolist()


def test_a_table_without_lists_cannot_be_balanced(tmp_path: Path, wording: Wording) -> None:
    spec = make_spec(write_prepared(tmp_path / "prepared"), "train.balance_lengths=true")
    wording.refused(SpecError, lambda: check_inputs(spec))
