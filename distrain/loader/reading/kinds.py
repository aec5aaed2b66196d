"""The readers of row groups by name, and what the rest of the loader must know of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReaderKind:
    cell_bytes: int = 8  # the most bytes of a decoded value on the host
    on_gpu: bool = False  # whether it decodes on the GPU that batches go to, past the host


READERS = {
    "arrow": ReaderKind(),
    # Not yet tested on a GPU: it must be asked for.
    "cudf": ReaderKind(on_gpu=True),
    # Raw rows, which `data.workflow` asks for.
    "raw": ReaderKind(cell_bytes=32),
}
ANY_TABLE = READERS["arrow"]
"""The reader that serves every table of prepared rows."""
