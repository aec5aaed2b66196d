"""What the host does for a route of a batch that lies on another device."""

import pytest
import torch
from host_work import HostWork

from distrain.models.embeddings import EmbeddingCollection, TableColumn, kernels
from distrain.models.embeddings.kernels import on_torch
from distrain.models.embeddings.kernels.random_bits import round_to_bfloat16

COLUMNS, ROWS = 6, 4096
META = torch.device("meta")


def test_the_host_makes_nothing_of_the_length_of_the_ids():
    # "meta" has no values, so it stops where a device would be asked for a number of rows.
    ids = torch.empty(COLUMNS * ROWS, dtype=torch.int32, device="meta")
    offsets = (torch.arange(COLUMNS) * ROWS).view(COLUMNS, 1)
    counts = torch.full((COLUMNS, 1), ROWS)
    found = []
    for _ in range(2):
        with HostWork() as work, pytest.raises(NotImplementedError):
            on_torch.unique(ids, offsets, counts)
        assert work.most <= 4 * COLUMNS
        found.append(work.operations)
    assert found[1] < found[0], "the second batch of a size finds the indices of the first"


@pytest.mark.parametrize("counts", [[[3, 0], [2, 2]], [[3, 0], [3, 0]], [[0, 0], [0, 0]]])
def test_indices_are_those_of_the_segments(counts):
    offsets = torch.tensor([[0, 7], [3, 9]])
    places, columns = on_torch._places_and_columns(
        torch.device("cpu"), offsets, torch.tensor(counts)
    )
    expected = [
        (start + i, column)
        for column in range(2)
        for start, count in zip(offsets[column].tolist(), counts[column], strict=True)
        for i in range(count)
    ]
    assert list(zip(places.tolist(), columns.tolist(), strict=True)) == expected


def test_lists_of_one_column_leave_no_indices_behind():
    before = on_torch._kept_places.cache_info().currsize
    for length in (5, 6, 7):
        on_torch._places_and_columns(META, torch.tensor([[0]]), torch.tensor([[length]]))
    assert on_torch._kept_places.cache_info().currsize == before


def test_of_routes_only_numbers_of_columns_and_ranks_are_copied():
    columns = 26
    counts = torch.arange(columns) * 100
    ids = torch.empty(int(counts.sum()), dtype=torch.int32, device=META)
    grouping = kernels.Grouping(ids, ids, counts)
    with HostWork() as work:
        assert kernels.keys_of(grouping, torch.zeros(columns, dtype=torch.int64)).device == META
        assert kernels.repeated(torch.arange(columns), counts, ids).shape == ids.shape
        assert len(kernels.places_in_rooms([300, 0, 800], [900] * 3, META)) == 1100
    assert max(work.copies) <= 2 * columns
    assert work.most <= 2 * columns


def test_a_steady_step_on_tables_in_bfloat16_copies_nothing():
    table_columns = [TableColumn("a", 40, 4), TableColumn("b", 30, 4)]
    (store,) = EmbeddingCollection(table_columns).stores
    rows, values = torch.empty(50, dtype=torch.int64, device=META), torch.empty(50, 4, device=META)

    def step(seed):
        round_to_bfloat16(values, seed, store.canonical_keys(rows))

    step(3)
    with HostWork() as work:
        step(2**63 + 4)
    assert work.copies == []
    assert work.most == 0
