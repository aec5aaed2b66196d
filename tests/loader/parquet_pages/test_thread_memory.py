"""A thread keeps no more memory than serves; tests beside the pages say when it is given again."""

import numpy as np

from distrain.loader.parquet_pages.thread_memory import ThreadMemory


def test_larger_memory_takes_the_place_of_smaller() -> None:
    memory = ThreadMemory()
    for count in range(1000, 20_000, 1000):
        memory.columns_for(count, [np.dtype(np.int64)])
        assert len(memory._arrays) == 1
    assert memory._arrays[0].nbytes == 19_000 * 8
