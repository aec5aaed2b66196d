"""Results made ahead of who asks for them."""

import threading
from collections.abc import Generator

import pytest
from hypothesis import given, settings, strategies as st
from waiting import until

from distrain.prep.text_files.byte_ranges import map_ahead


class Stop(Exception):
    pass


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.integers(-1, 9), st.integers(-1, 9), st.integers(1, 3))
def test_results_and_errors_come_in_the_order_of_the_items(
    count: int, bad_item: int, bad_result: int, threads: int
) -> None:
    closed = []

    def items() -> Generator[int, None, None]:
        try:
            for n in range(count):
                if n == bad_item:
                    raise Stop("item")
                yield n
        finally:
            closed.append(True)

    def make(n: int) -> int:
        if n == bad_result:
            raise Stop("result")
        return n * n

    found: list[object] = []
    try:
        found.extend(map_ahead(make, items(), threads))
    except Stop as stop:
        found.append(str(stop))
    expected: list[object] = [n * n for n in range(count)]
    bad = [(n, what) for n, what in ((bad_item, "item"), (bad_result, "result")) if 0 <= n < count]
    if bad:
        first, what = min(bad)
        expected = [*expected[:first], what]
    assert found == expected
    assert closed == [True]


def test_who_stops_early_leaves_no_thread_and_closes_the_items() -> None:
    taken, closed = [], threading.Event()

    def items() -> Generator[int, None, None]:
        try:
            for n in range(1000):
                taken.append(n)
                yield n
        finally:
            closed.set()

    before = set(threading.enumerate())
    results = map_ahead(lambda n: n, items(), 2)
    assert [next(results), next(results)] == [0, 1]
    until(lambda: len(taken) == 5, "two that were given, three ahead")
    results.close()
    assert closed.is_set()
    assert len(taken) == 5
    assert set(threading.enumerate()) <= before
    with pytest.raises(StopIteration):
        next(results)
