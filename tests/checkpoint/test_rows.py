"""Rows at even distances, shares and slabs, against sets of numbers."""

import torch
from hypothesis import given, strategies as st

from distrain.checkpoint import local_rows
from distrain.checkpoint.local_rows import LocalRows, Rows, share_of
from distrain.checkpoint.shard import ShardPiece
from distrain.checkpoint.shard_reading import Need, slabs_of

rows_at_any_distance = st.builds(Rows, st.integers(0, 40), st.integers(1, 12), st.integers(0, 25))


@given(rows_at_any_distance, rows_at_any_distance)
def test_what_two_sets_have_in_common(left, right):
    expected = sorted(set(left.numbers()) & set(right.numbers()))
    met = left.meet(right)
    if met is None:
        assert expected == []
    else:
        assert list(left.numbers()[met[0]]) == expected
        assert list(right.numbers()[met[1]]) == expected


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 60))
def test_ranks_that_deal_rows_anew_find_each_once(before, after, count):
    dealt = [Rows(rank, before, len(range(rank, count, before))) for rank in range(before)]
    found = []
    for rank in range(after):
        own = Rows(rank, after, len(range(rank, count, after)))
        for piece in dealt:
            met = own.meet(piece)
            found += list(own.numbers()[met[0]]) if met else []
    assert sorted(found) == list(range(count))


@given(rows_at_any_distance, st.data())
def test_a_part_is_a_slice(rows, data):
    start = data.draw(st.integers(0, rows.count))
    stop = data.draw(st.integers(start, rows.count))
    assert rows.part(start, stop).numbers() == rows.numbers()[start:stop]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4), st.booleans()), max_size=6),
    st.integers(1, 5),
    st.integers(1, 200),
)
def test_every_row_is_written_by_one_rank(tensors, num_ranks, small_bytes):
    written = [[] for _ in tensors]
    before, local_rows.SMALL_BYTES = local_rows.SMALL_BYTES, small_bytes
    try:
        for rank in range(num_ranks):
            held = []
            for number, (count, width, alone) in enumerate(tensors):
                rows = Rows(0, 1, count)
                if alone:
                    rows = Rows(rank, num_ranks, len(range(rank, count, num_ranks)))
                values = torch.tensor(list(rows.numbers())).unsqueeze(1).expand(-1, width)
                held.append(LocalRows(str(number), rows, values.reshape(-1, width), alone))
            for share in share_of(held, rank, num_ranks):
                assert share.values[:, 0].tolist() == list(share.rows.numbers())
                written[int(share.name)] += share.rows.numbers()
    finally:
        local_rows.SMALL_BYTES = before
    assert [sorted(rows) for rows in written] == [list(range(c)) for c, _, _ in tensors]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.booleans()), max_size=8),
    st.integers(1, 50),
)
def test_slabs_hold_each_row_once_in_one_stretch(pieces, most):
    needs, offset = [], 100
    for number, (count, row_bytes, needed) in enumerate(pieces):
        if needed:
            piece = ShardPiece(str(number), Rows(0, 1, count), offset, "")
            needs.append(Need(piece, row_bytes, []))
        offset += count * row_bytes
    found = []
    for slab in slabs_of(needs, most):
        size = sum(part.num_bytes for part in slab)
        assert size <= most or (len(slab) == 1 and slab[0].stop - slab[0].start == 1)
        assert slab[-1].offset + slab[-1].num_bytes - slab[0].offset == size
        found += [(part.need.piece.name, row) for part in slab for row in range(*part[1:])]
    assert found == [(n.piece.name, row) for n in needs for row in range(n.piece.rows.count)]
