"""Row groups in little memory, and tables on their way to another process."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from distrain.loader.partition.table import RowGroup, Table, Windows

FILES = st.lists(
    st.tuples(
        st.text(min_size=1),
        st.lists(st.integers(1, 2**40), min_size=1, max_size=5),
        st.sampled_from([(), (("day", 7), ("price", 0.5))]),
        st.sampled_from(["", "13 bytes", "(3, [('ETag', 'a')])"]),
    ),
    max_size=5,
    unique_by=lambda file: file[0],
)


def groups_of(files):
    return [
        RowGroup(name, index, num_rows, constants, version)
        for name, sizes, constants, version in files
        for index, num_rows in enumerate(sizes)
    ]


@settings(max_examples=15)
@given(FILES)
def test_a_table_holds_its_row_groups_and_comes_over_as_it_was(files):
    groups = groups_of(files)
    table = Table(tuple(groups), "ab" * 32)
    for other in (table, Table.from_bytes(table.to_bytes()), pickle.loads(pickle.dumps(table))):
        assert list(other.row_groups) == groups
        assert [group.version for group in other.row_groups] == [group.version for group in groups]
        assert other == table
        assert hash(other) == hash(table)
        assert other.fingerprint == table.fingerprint
        assert other.num_rows == sum(group.num_rows for group in groups)
        assert other.compact.files == [name for name, *_ in files]
        assert other.compact.rows.tolist() == [group.num_rows for group in groups]
        assert other.row_groups[1:] == tuple(groups[1:])


@given(FILES, st.data())
def test_a_window_of_a_table_is_the_table_of_its_row_groups(files, data):
    groups = groups_of(files)
    of_group = data.draw(st.lists(st.integers(0, 2), min_size=len(groups), max_size=len(groups)))
    windows = Windows(("a", "b", "c"), np.array(of_group, np.int32))
    table = Table(groups, "ab" * 32, windows=windows)
    for other in (table, Table.from_bytes(table.to_bytes())):
        assert other.windows is not None
        assert other.windows.names == windows.names
        for number in range(3):
            expected = [g for g, n in zip(groups, of_group, strict=True) if n == number]
            part = other.of_window(number)
            assert list(part.row_groups) == expected
            assert part.compact.files == list(dict.fromkeys(group.file for group in expected))
    kept = data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)))
    some = table.taking([g if is_kept else None for g, is_kept in zip(groups, kept, strict=True)])
    assert some.windows is not None
    found = [some.windows.names[number] for number in some.windows.of_group.tolist()]
    assert found == ["abc"[n] for n, is_kept in zip(of_group, kept, strict=True) if is_kept]
    assert set(some.windows.names) == set(found)


def test_a_row_group_takes_few_bytes():
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        table = Table((RowGroup(f"f{n // 1000}", n % 1000, 20) for n in range(20_000)), "ab")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table.row_groups) == 20_000
    assert after - before < 40 * 20_000  # a RowGroup object alone takes more than 100
    assert len(table.to_bytes()) < 3 * 20_000


@pytest.mark.parametrize("content", [b"", b"PK", b"x" * 100, Table((), "ab").to_bytes()[:-30]])
def test_what_is_no_table_is_refused(content):
    with pytest.raises(ValueError, match="no table"):
        Table.from_bytes(content)
