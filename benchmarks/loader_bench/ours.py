"""distrain's own contenders: the only module that calls its loader."""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.loader_bench.measure import BATCH_ROWS, Open, Pass, touch


def ours(
    layout: str,
    threads: int,
    shuffle: str = "chunk",
    device: str | None = None,
    cache: str | None = None,
    windows: str | None = None,
) -> Open:
    """Return a case of the loader with its checks; it touches features and label of each batch.

    On a GPU, copies run concurrently with the loop, and a pass ends when all copies have finished.

    Args:
        layout: Name of the layout.
        threads: Decoding threads.
        shuffle: The loader's `shuffle`.
        device: Device of the batches; None for host memory.
        cache: Folder of a cache, relative to the data; None for no cache.
        windows: The key whose values are windows; None for no windows.
    """

    def open_loader(data: Path) -> Pass:
        import torch

        from distrain.jobs.spec.data import WindowsSpec
        from distrain.loader import Dataset, Loader

        if device is not None:
            torch.zeros(1, device=device)  # initialise the driver before measuring
        loader = Loader(
            Dataset(
                data / layout,
                schema_path(data, layout),
                windows=None if windows is None else WindowsSpec(by=windows),
            ),
            batch_size=BATCH_ROWS,
            shuffle=shuffle,
            decode_threads=threads,
            device=device,
            cache=str(data / cache) if cache else None,
        )

        def batches(number: int) -> Iterator[int]:
            with loader.epoch(number) as epoch:
                for batch in epoch:
                    lists = [part for r in batch.lists.values() for part in (r.values, r.offsets)]
                    touch(batch.categorical.T, batch.continuous.T, batch.label, *lists)
                    yield batch.num_rows
                if device is not None:
                    torch.cuda.synchronize()

        return batches

    return open_loader


def reopened(layout: str, threads: int, *, fills: bool = False) -> Open:
    """Return a case with a new loader for each pass; with `fills` it fills an empty cache.

    Opening a loader, and removing the previous pass's cache, are not measured.
    """

    def open_loaders(data: Path) -> Pass:
        folders: list[str] = []

        def remove() -> None:
            while folders:
                shutil.rmtree(folders.pop())

        atexit.register(remove)

        def batches(number: int) -> Iterator[int]:
            remove()
            folders.append(tempfile.mkdtemp(prefix="filled-", dir=data))
            cache = Path(folders[-1]).name if fills else None
            return ours(layout, threads, cache=cache)(data)(number)

        return batches

    return open_loaders


def fill_cache(data: Path) -> None:
    """Fill the layout `cache` from `ordinary`, as `distrain pack` does."""
    from distrain.loader import Dataset
    from distrain.loader.cache.pack import pack

    pack(Dataset(data / "ordinary", schema_path(data, "ordinary")), data / "cache")


def schema_path(data: Path, layout: str) -> Path:
    """Return the schema file of a layout."""
    own = data / f"schema-{layout}.pbtxt"
    return own if own.exists() else data / "schema.pbtxt"
