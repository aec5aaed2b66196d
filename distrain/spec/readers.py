"""The readers of row groups, and what each can do: nobody else compares their names."""

from dataclasses import dataclass
from typing import Literal

ReaderKind = Literal["arrow", "packed", "cudf"]
"""What `data.reader` may name: the keys of `READERS`."""


@dataclass(frozen=True)
class ReaderFacts:
    code: str  # its class, `module:Name`, a `TableReader` of `distrain/loader/reading/reader.py`
    hint: str = ""  # what to do where it cannot serve a table
    by_auto: bool = False  # whether `auto` may take it, in the order of the table
    # why `auto` takes it; null: since those before it cannot serve the table
    chosen: str | None = None
    cell_bytes: int = 8  # the most bytes of a decoded value on the host
    # whether it decodes on the GPU that batches go to, so that no row passes the host
    on_gpu: bool = False
    fetches: bool = False  # whether it reads remote files, which it fetches ahead
    # whether decoders of large row groups stay open between their slices
    keeps_decoders: bool = False
    checks_files: bool = False  # whether it refuses changed files by itself
    is_cached: bool = False  # whether `data.cache_dir` keeps what it decodes


READERS: dict[ReaderKind, ReaderFacts] = {
    "packed": ReaderFacts(
        "distrain.loader.packed:PackedReader",
        "`distrain pack` writes files for it; reader 'auto' takes what serves the table.",
        by_auto=True,
        chosen="all files are in the fast layout",
        cell_bytes=4,
        checks_files=True,
    ),
    # It has not run on a GPU yet: only who names it gets it.
    "cudf": ReaderFacts(
        "distrain.loader.cudf_reader:CudfReader",
        "It decodes on the GPU that batches go to; 'auto' takes another one.",
        on_gpu=True,
    ),
    "arrow": ReaderFacts(
        "distrain.loader.reading:ArrowReader",
        by_auto=True,
        fetches=True,
        keeps_decoders=True,
        is_cached=True,
    ),
}

RAW_ROWS = ReaderFacts(
    "distrain.loader.reading.raw:RawReader", cell_bytes=32, fetches=True, keeps_decoders=True
)
"""The reader of raw rows, which `data.workflow` asks for."""

ANY_TABLE = READERS["arrow"]
"""The reader that serves every table."""
