"""distrain's own contenders: the one place that knows how its loader is called."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loader_bench.measure import BATCH_ROWS, Open, Pass, touch


def make_loader(data: Path, layout: str, threads: int, shuffle: str, device: str) -> Any:
    from distrain.loader import Loader
    from distrain.partition import read_footers
    from distrain.schema import Schema

    schema = Schema.load(data / "schema.pbtxt")
    return Loader(
        read_footers(str(data / layout), schema),
        schema,
        global_batch_size=BATCH_ROWS,
        shuffle=shuffle,
        decode_threads=threads,
        pin_memory=device == "cuda",
    )


def ours(layout: str, threads: int, shuffle: str = "chunk") -> Open:
    """The loader with its checks; all features and the label of each batch are touched."""

    def open_loader(data: Path) -> Pass:
        import torch  # noqa: F401  # imports are not what is measured

        loader = make_loader(data, layout, threads, shuffle, "cpu")

        def batches(number: int) -> Iterator[int]:
            with loader.epoch(number) as epoch:
                for batch in epoch:
                    touch(batch.categorical.T, batch.continuous.T, batch.label)
                    yield batch.num_rows

        return batches

    return open_loader


def ours_to_gpu(layout: str, threads: int) -> Open:
    """The same, each batch copied to the GPU from page-locked memory, without waiting for it."""

    def open_loader(data: Path) -> Pass:
        import torch

        device = torch.device("cuda")
        torch.zeros(1, device=device)  # the driver's start is not what is measured
        loader = make_loader(data, layout, threads, "chunk", "cuda")

        def batches(number: int) -> Iterator[int]:
            with loader.epoch(number) as epoch:
                for batch in epoch:
                    yield batch.to(device).num_rows
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
