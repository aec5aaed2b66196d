"""Rows next to each other or as ranks deal them, shares and slabs, against sets of numbers."""

from hypothesis import given, strategies as st

from distrain.models.embeddings.row_owners import num_rows_before
from distrain.train.checkpoint import local_rows
from distrain.train.checkpoint.local_rows import LocalRows, Rows, rows_to_write
from distrain.train.checkpoint.shard import ShardPiece
from distrain.train.checkpoint.shard_reading import Need, slabs_of

beside_each_other = st.builds(Rows, st.integers(0, 40), st.just(1), st.integers(0, 99))


@st.composite
def rows_of_a_rank(draw):
    num_ranks, block, count = (draw(st.integers(low, 9)) for low in (1, 0, 0))
    first = draw(st.sampled_from([block * num_ranks, 5]))  # of one deal, or of any
    return Rows(first, num_ranks, count, draw(st.integers(0, num_ranks - 1)), block)


any_rows = beside_each_other | rows_of_a_rank()


def dealt(rank, num_ranks, count):
    return Rows(0, num_ranks, num_rows_before(count, rank, num_ranks), rank)


@given(any_rows, any_rows)
def test_what_two_sets_have_in_common(left, right):
    expected = sorted(set(left.numbers().tolist()) & set(right.numbers().tolist()))
    met = list(left.meet(right))
    assert [row for here, _ in met for row in left.numbers()[here].tolist()] == expected
    assert [row for _, there in met for row in right.numbers()[there].tolist()] == expected
    assert left.may_meet(right) or not expected


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 60))
def test_ranks_that_deal_rows_anew_find_each_once(before, after, count):
    pieces = [dealt(rank, before, count) for rank in range(before)]
    found = []
    for rank in range(after):
        own = dealt(rank, after, count)
        for piece in pieces:
            for here, _ in own.meet(piece):
                found += own.numbers()[here].tolist()
    assert sorted(found) == list(range(count))


@given(any_rows, st.data())
def test_a_part_is_a_slice(rows, data):
    start = data.draw(st.integers(0, rows.count))
    stop = data.draw(st.integers(start, rows.count))
    numbers = rows.numbers().tolist()
    assert rows.part(start, stop).numbers().tolist() == numbers[start:stop]
    row = data.draw(st.integers(0, 130))
    assert rows.num_before(row) == sum(number < row for number in numbers)


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
                    rows = dealt(rank, num_ranks, count)
                values = rows.numbers().unsqueeze(1).expand(-1, width)
                held.append(LocalRows(str(number), rows, values.reshape(-1, width), alone))
            for share in rows_to_write(held, rank, num_ranks):
                assert share.values[:, 0].tolist() == share.rows.numbers().tolist()
                written[int(share.name)] += share.rows.numbers().tolist()
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
            needs.append(Need(piece, ("U8", (count, row_bytes)), []))
        offset += count * row_bytes
    found = []
    for slab in slabs_of(needs, most):
        size = sum(part.num_bytes for part in slab)
        assert size <= most or (len(slab) == 1 and slab[0].stop - slab[0].start == 1)
        assert slab[-1].offset + slab[-1].num_bytes - slab[0].offset == size
        found += [(part.need.piece.name, row) for part in slab for row in range(*part[1:])]
    assert found == [(n.piece.name, row) for n in needs for row in range(n.piece.rows.count)]
