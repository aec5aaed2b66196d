"""A thread's memory is used again, and no more of it is kept than serves."""

import numpy as np
import pytest

from distrain.loader.pages.thread_memory import ThreadMemory

pytestmark = pytest.mark.filterwarnings("error")


def test_memory_that_nobody_refers_to_is_given_again() -> None:
    memory = ThreadMemory()
    first = memory.values_for(1000, np.dtype(np.int64))
    second = memory.values_for(1000, np.dtype(np.int64))
    assert first.ctypes.data != second.ctypes.data
    place = first.ctypes.data
    del first
    assert memory.values_for(500, np.dtype(np.float32)).ctypes.data == place


def test_larger_memory_takes_the_place_of_smaller() -> None:
    memory = ThreadMemory()
    for count in range(1000, 20_000, 1000):
        memory.values_for(count, np.dtype(np.int64))
        assert len(memory._arrays) == 1
    assert memory._arrays[0].nbytes == 19_000 * 8


def test_memory_in_use_is_not_given_to_others() -> None:
    memory = ThreadMemory()
    held = []
    for number in range(30):
        held.append(memory.values_for(100 + number, np.dtype(np.int32)))
        held[-1][:] = number
        del held[:-10]
    for number, values in enumerate(held, start=20):
        assert (values == number).all()
