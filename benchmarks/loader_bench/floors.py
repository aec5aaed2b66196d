"""Upper bounds for any loader on this machine: copying rows, reading them, decoding them."""

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.loader_bench.data import ROW_BYTES
from benchmarks.loader_bench.measure import BATCH_ROWS, Open, Pass
from benchmarks.loader_bench.ours import schema_path

COPIES = 400


def memcpy(data: Path) -> Pass:
    """Copy batches of 160-byte rows between blocks larger than the caches, in one thread."""
    import numpy as np

    blocks = np.zeros((16, BATCH_ROWS * ROW_BYTES), np.uint8)

    def copies(number: int) -> Iterator[int]:
        for copy in range(COPIES):
            np.copyto(blocks[(copy + 8) % 16], blocks[copy % 16])
            yield BATCH_ROWS

    blocks[:] = 1  # allocates every page
    return copies


def copy_to_gpu(data: Path) -> Pass:
    """Copy batches of 160-byte rows from page-locked memory to the GPU."""
    import torch

    source = torch.ones((8, BATCH_ROWS * ROW_BYTES), dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device="cuda")

    def copies(number: int) -> Iterator[int]:
        for copy in range(COPIES):
            target[copy % 8].copy_(source[copy % 8], non_blocking=True)
            yield BATCH_ROWS
        torch.cuda.synchronize()

    return copies


def decoding(layout: str, threads: int) -> Open:
    """Return a case in which Arrow decodes the schema's columns and drops them.

    Each thread decodes one row group at a time.
    """

    def open_files(data: Path) -> Pass:
        import threading
        from concurrent.futures import ThreadPoolExecutor

        import pyarrow.parquet as pq

        from distrain.schema import Schema

        names = [column.name for column in Schema.load(schema_path(data, layout))]
        paths = sorted((data / layout).iterdir())
        footers = {path: pq.read_metadata(path) for path in paths}
        groups = [(path, index) for path in paths for index in range(footers[path].num_row_groups)]
        own = threading.local()  # a file handle per thread: with a shared one, threads would wait

        def decode(group: tuple[Path, int]) -> int:
            path, index = group
            if getattr(own, "path", None) != path:
                own.path = path
                own.file = pq.ParquetFile(path, metadata=footers[path], pre_buffer=False)
            table = own.file.read_row_group(index, columns=names, use_threads=False)
            rows: int = table.num_rows
            return rows

        def decoded(number: int) -> Iterator[int]:
            with ThreadPoolExecutor(threads) as pool:
                yield from pool.map(decode, groups)

        return decoded

    return open_files


def reading(layout: str, threads: int) -> Open:
    """Return a case that reads the bytes of all cache entries, and decodes nothing."""

    def open_files(data: Path) -> Pass:
        import threading
        from concurrent.futures import ThreadPoolExecutor

        spans = [entry_span(path) for path in sorted((data / layout).glob("*.rows"))]
        size_bytes = max(size for _, _, size, _ in spans)
        own = threading.local()

        def read(span: tuple[int, int, int, int]) -> int:
            file, start, size, rows = span
            if not hasattr(own, "buffer"):
                own.buffer = memoryview(bytearray(size_bytes))
            if os.preadv(file, [own.buffer[:size]], start) != size:
                raise OSError("a file became shorter")
            return rows

        def were_read(number: int) -> Iterator[int]:
            with ThreadPoolExecutor(threads) as pool:
                yield from pool.map(read, spans)

        return were_read

    return open_files


def entry_span(path: Path) -> tuple[int, int, int, int]:
    """Return descriptor, first byte, size and rows of an entry; its last few KB are metadata."""
    file, size = os.open(path, os.O_RDONLY), path.stat().st_size
    return file, 0, size, size // ROW_BYTES
