"""The readers of row groups by name, with the properties that the loader depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReaderKind:
    cell_bytes: int = 8  # the maximum bytes of a decoded value on the host
    on_gpu: bool = False  # whether it decodes on the batches' GPU and not on the host


READERS = {
    "arrow": ReaderKind(),
    # Not yet tested on a GPU: `auto` does not choose it.
    "cudf": ReaderKind(on_gpu=True),
    # Raw rows, for `data.workflow`.
    "raw": ReaderKind(cell_bytes=32),
}
ANY_TABLE = READERS["arrow"]
"""The reader that serves every table of prepared rows."""
