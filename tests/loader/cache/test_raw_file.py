"""Reading several parts of a file: neighbours in one call, whatever the order, gaps and reads."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.loader.cache.raw_file import RawFile

CONTENT = bytes(random.Random(0).randbytes(4000))
SPARE_BYTES = 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("raw") / "values"
    file.write_bytes(CONTENT)
    return file


def filled(path: Path, wanted: list[tuple[int, int]]) -> list[bytes]:
    """What `fill_all` reads of these places: a start and a length each."""
    parts = [bytearray(length) for _, length in wanted]
    starts = [start for start, _ in wanted]
    RawFile(str(path)).fill_all(
        list(map(memoryview, parts)), starts, memoryview(bytearray(SPARE_BYTES))
    )
    return list(map(bytes, parts))


places = st.tuples(st.integers(0, 3900), st.integers(0, 100))
neighbours = st.lists(st.tuples(st.integers(0, SPARE_BYTES + 1), st.integers(0, 100)), max_size=8)


@given(wanted=st.lists(places, max_size=6), following=neighbours)
def test_each_part_holds_the_bytes_of_its_place(
    path: Path, wanted: list[tuple[int, int]], following: list[tuple[int, int]]
) -> None:
    start = 1000
    for gap, length in following:
        wanted = [*wanted, (start + gap, length)]
        start += gap + length

    assert filled(path, wanted) == [CONTENT[first : first + size] for first, size in wanted]


def test_neighbours_are_read_in_one_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: calls.append(a[2]) or preadv(*a))

    filled(path, [(10, 20), (30, 20), (50 + SPARE_BYTES, 20), (71 + 2 * SPARE_BYTES, 20), (0, 5)])

    assert calls == [10, 71 + 2 * SPARE_BYTES, 0]


def test_what_an_interrupted_call_left_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv

    def short(descriptor: int, pieces: list[memoryview], start: int) -> int:
        return preadv(descriptor, [piece[:7] for piece in pieces][:2], start)

    monkeypatch.setattr(os, "preadv", short)

    assert filled(path, [(5, 30), (40, 9)]) == [CONTENT[5:35], CONTENT[40:49]]


def test_a_file_that_ends_before_a_part_is_told(path: Path, wording: Wording) -> None:
    wording.refused(DataError, lambda: filled(path, [(3900, 50), (3950, 51)]))


def test_more_parts_than_one_call_takes(path: Path) -> None:
    wanted = [(2 * number, 1) for number in range(1500)]

    assert filled(path, wanted) == [CONTENT[first : first + 1] for first, _ in wanted]
