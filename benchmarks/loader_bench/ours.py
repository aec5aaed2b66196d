"""distrain's own contenders: the one place that knows how its loader is called."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.loader_bench.measure import BATCH_ROWS, Open, Pass, touch


def ours(layout: str, threads: int, shuffle: str = "chunk", device: str | None = None) -> Open:
    """The loader with its checks; features and label of each batch are touched.

    Where a GPU is the device, copies run beside the loop, and a pass ends when all have arrived.
    """

    def open_loader(data: Path) -> Pass:
        import torch

        from distrain.loader import Dataset, Loader

        if device is not None:
            torch.zeros(1, device=device)  # the driver's start is not what is measured
        loader = Loader(
            Dataset(data / layout, data / "schema.pbtxt"),
            batch_size=BATCH_ROWS,
            shuffle=shuffle,
            decode_threads=threads,
            device=device,
        )

        def batches(number: int) -> Iterator[int]:
            with loader.epoch(number) as epoch:
                for batch in epoch:
                    touch(batch.categorical.T, batch.continuous.T, batch.label)
                    yield batch.num_rows
                if device is not None:
                    torch.cuda.synchronize()

        return batches

    return open_loader


def pack_fast(data: Path) -> str | None:
    """Write the layout `fast` from `prep` as `distrain pack` does, or say why that cannot be."""
    try:
        from distrain.loader.packed import pack
    except ImportError as error:
        return str(error)
    from distrain.schema import Schema

    pack(str(data / "prep"), Schema.load(data / "schema.pbtxt"), data / "fast")
    return None
