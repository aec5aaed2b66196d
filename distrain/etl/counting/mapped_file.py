"""Files in memory that take no descriptor, so that columns and pieces may be many."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class MappedFile:
    """A file that is mapped into memory as long as something holds its bytes; it is not open."""

    content: Any

    @classmethod
    def open(cls, path: str | Path) -> MappedFile:
        """Map a file; an `OSError` if it cannot be opened or mapped."""
        if not Path(path).stat().st_size:  # an empty file cannot be mapped
            return cls(pa.py_buffer(b""))
        # Python's own maps keep a descriptor each.
        with pa.memory_map(str(path)) as file:
            return cls(file.read_buffer())

    def forget(self) -> None:
        """Count what was looked at no longer as this process's memory; it is there when needed."""
        if self.content.size:
            place, size = ctypes.c_void_p(self.content.address), ctypes.c_size_t(self.content.size)
            _LIBC.madvise(place, size, mmap.MADV_DONTNEED)
