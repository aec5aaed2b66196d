"""A row's hash depends on all of its values and on nothing else."""

import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from distrain.loader.batch import Batch, Ragged
from distrain.train.audit.audit import row_hashes


def make_batch(rows, ids=3, numbers=2, generator=None, lists=True):
    generator = generator or torch.Generator().manual_seed(rows)
    lengths = torch.randint(0, 4, (rows,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int()
    values = torch.randint(0, 50, (int(lengths.sum()),), generator=generator).int()
    return Batch(
        torch.randint(0, 2**31 - 1, (rows, ids), generator=generator).int(),
        torch.randn(rows, numbers, generator=generator),
        torch.randint(0, 2, (rows,), generator=generator).float(),
        tuple(f"c{i}" for i in range(ids)),
        tuple(f"n{i}" for i in range(numbers)),
        lists={"tags": Ragged(values, offsets)} if lists else {},
    )


def rows_of(batch, rows):
    """Some rows of a batch, laid out in another way."""
    lists = {}
    for name, column in batch.lists.items():
        parts = [column.values[column.offsets[r] : column.offsets[r + 1]] for r in rows]
        lengths = torch.tensor([0, *(len(part) for part in parts)])
        values = torch.cat([*parts, torch.empty(0, dtype=torch.int32)])
        lists[name] = Ragged(values, lengths.cumsum(0).int())
    return Batch(
        batch.categorical[rows].contiguous(),
        batch.continuous[rows].t().contiguous().t(),
        batch.label[rows],
        batch.categorical_names,
        batch.continuous_names,
        lists=lists,
    )


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 19), max_size=30))
def test_a_row_has_its_hash_in_any_batch(rows):
    batch = make_batch(20)
    assert torch.equal(row_hashes(rows_of(batch, rows)), row_hashes(batch)[rows])


def test_every_value_counts():
    batch = make_batch(8)
    before = row_hashes(batch)
    for part in (batch.categorical, batch.continuous, batch.label[:, None]):
        for column in range(part.shape[1]):
            kept = part[3, column].clone()
            part[3, column] += 1
            changed = row_hashes(batch) != before
            part[3, column] = kept
            assert changed.tolist() == [row == 3 for row in range(8)]
    tags = batch.lists["tags"]
    (row,) = {int((tags.offsets <= 2).sum()) - 1}
    tags.values[2] += 1
    assert (row_hashes(batch) != before).tolist() == [r == row for r in range(8)]


def test_the_place_of_a_value_counts_in_columns_and_lists():
    def hash_of(ids, values, lengths=(2,)):
        offsets = torch.tensor([0, *np.cumsum(lengths)]).int()
        tags = {"t": Ragged(torch.tensor(values).int(), offsets)}
        rows = torch.tensor([ids] * len(lengths)).int()
        return row_hashes(
            Batch(rows, torch.zeros(len(rows), 0), None, ("a", "b"), (), lists=tags)
        ).tolist()

    assert hash_of([1, 2], [3, 4]) != hash_of([2, 1], [3, 4])
    assert hash_of([1, 2], [3, 4]) != hash_of([1, 2], [4, 3])
    assert hash_of([1, 2], [0, 0]) != hash_of([1, 2], [0], (1,))
    first, second = hash_of([1, 2], [3, 4, 3, 4], (2, 2))
    assert [first] == [second] == hash_of([1, 2], [3, 4])


def test_hashes_of_rows_that_differ_do_not_meet():
    rows = 200_000
    ids = torch.stack([torch.arange(rows) % 500, torch.arange(rows) // 500], 1).int()
    hashes = row_hashes(Batch(ids, torch.zeros(rows, 0), None, ("a", "b"), ()))
    assert len(hashes.unique()) == rows
    bits = (hashes[:, None] >> torch.arange(64)) & 1
    assert (bits.double().mean(0) - 0.5).abs().max() < 0.01
