"""Ranges of bytes, against slices."""

import pytest
from hypothesis import given, strategies as st

from distrain.service.api.streams.artifacts import NoSuchBytes, wanted_range

sizes = st.integers(0, 50)
places = st.integers(0, 80)


@given(sizes, places, st.none() | places)
def test_a_range_is_a_slice(size: int, first: int, last: int | None) -> None:
    data = bytes(range(size))
    header = f"bytes={first}-{'' if last is None else last}"
    if last is not None and last < first:
        assert wanted_range(header, size) is None
        return
    expected = data[first:] if last is None else data[first : last + 1]
    if not expected:
        with pytest.raises(NoSuchBytes):
            wanted_range(header, size)
        return
    found = wanted_range(header, size)
    assert found is not None
    assert data[slice(*found)] == expected


@given(sizes, places)
def test_a_suffix_is_the_end(size: int, length: int) -> None:
    data = bytes(range(size))
    if not size or not length:
        with pytest.raises(NoSuchBytes):
            wanted_range(f"bytes=-{length}", size)
        return
    found = wanted_range(f"bytes=-{length}", size)
    assert found is not None
    assert data[slice(*found)] == data[-length:]


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=5-3",
     "bytes=1--2", "bytes=+1-2", "bytes=\N{ARABIC-INDIC DIGIT ONE}-2"],
)  # fmt: skip
def test_what_is_no_single_range_is_ignored(header: str | None) -> None:
    assert wanted_range(header, 10) is None


def test_numbers_of_any_length_do_no_harm() -> None:
    assert wanted_range("bytes=0-" + "9" * 5000, 10) == (0, 10)
    with pytest.raises(NoSuchBytes):
        wanted_range("bytes=" + "9" * 5000 + "-", 10)
