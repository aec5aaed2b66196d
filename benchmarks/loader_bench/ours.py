"""distrain's own contenders: the one place that knows how its loader is called."""

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
    """The loader with its checks; features and label of each batch are touched.

    Where a GPU is the device, copies run beside the loop, and a pass ends when all have arrived.
    `cache` is a folder of the data, and windows go by the key `windows`.
    """

    def open_loader(data: Path) -> Pass:
        import torch

        from distrain.jobs.spec.data import WindowsSpec
        from distrain.loader import Dataset, Loader

        if device is not None:
            torch.zeros(1, device=device)  # the driver's start is not what is measured
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


def anew(layout: str, threads: int, *, fills: bool = False) -> Open:
    """A new loader for each pass; `fills` has it fill a cache that is empty when it begins.

    Loaders are opened, and what the pass before filled is removed, while nothing is measured.
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
    """What the columns of a layout mean."""
    own = data / f"schema-{layout}.pbtxt"
    return own if own.exists() else data / "schema.pbtxt"
