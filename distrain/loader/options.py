"""A loader's options, checked, and sizes as people write them."""

from __future__ import annotations

import operator
import os
import re
from dataclasses import dataclass, field
from typing import Any

from distrain.errors import SpecError
from distrain.loader.partition.order import SHUFFLES
from distrain.storage.urls import is_remote

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_LEAST = {
    "global_batch_size": 1,
    "seed": 0,
    "lanes": 1,
    "rank": 0,
    "num_ranks": 1,
    "parts_per_chunk": 1,
    "prefetch_batches": 1,
    "decode_threads": 1,
}


@dataclass(frozen=True)
class FetchOptions:
    """How a loader asks for ranges of remote files.

    Attributes:
        connections: Requests in flight at a time.
        range_bytes: The most that one of them asks for.
        gap_bytes: Bytes between two wanted ones that are read rather than asked for separately.
        ahead_bytes: The most that is held of row groups that nobody has asked for yet, unless that
            is a single one.
    """

    connections: int = 8
    range_bytes: int = 8 << 20
    gap_bytes: int = 256 << 10
    ahead_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        least = {"connections": 1, "range_bytes": 1, "gap_bytes": 0, "ahead_bytes": 0}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise SpecError(f"{name} is {getattr(self, name)}, not {number} or more")

    @property
    def most_bytes(self) -> int:
        """What is held at a time: row groups ahead, and requests in flight, received and joined."""
        return self.ahead_bytes + 2 * self.connections * self.range_bytes


@dataclass(frozen=True)
class LoaderOptions:
    """The options that a rank's stream depends on; see `Loader` for each."""

    global_batch_size: int
    shuffle: str
    seed: int
    lanes: int
    rank: int
    num_ranks: int
    drop_last: bool
    parts_per_chunk: int
    prefetch_batches: int
    decode_threads: int
    pin_memory: bool
    shuffle_dir: str | None = None
    fetch: FetchOptions = field(default_factory=FetchOptions)

    @classmethod
    def checked(cls, *, shuffle: str | bool, **options: Any) -> LoaderOptions:
        mode = ("chunk" if shuffle else "none") if isinstance(shuffle, bool) else shuffle
        if mode not in SHUFFLES:
            raise SpecError(f"unknown shuffle {mode!r}", hint=f"Allowed: {', '.join(SHUFFLES)}.")
        for name, least in _LEAST.items():
            options[name] = whole_number(name, options[name], least)
        if options["rank"] >= options["num_ranks"]:
            raise SpecError(f"rank {options['rank']} is not in 0..{options['num_ranks'] - 1}")
        folder = options.get("shuffle_dir")
        if folder is not None and is_remote(folder):
            raise SpecError(
                f"shuffle_dir cannot be a URL: {folder}", hint="Name a folder on a local disk."
            )
        return cls(shuffle=mode, **options)

    @property
    def loads_ahead(self) -> int:
        """Row groups in decoding, and as many that wait for a thread, or are done early."""
        return 2 * self.decode_threads

    def order_of_rows(self) -> dict[str, int | str | bool]:
        names = ("global_batch_size", "shuffle", "seed", "lanes", "drop_last", "parts_per_chunk")
        return {name: getattr(self, name) for name in names}


def rows_over_all_ranks(
    batch_size: int | None, global_batch_size: int | None, num_ranks: int
) -> int:
    """The global batch size, from whichever of the two is given."""
    if (batch_size is None) == (global_batch_size is None):
        raise SpecError(
            "give either batch_size or global_batch_size",
            hint="batch_size counts the rows of a step on one rank, global_batch_size on all.",
        )
    num_ranks = whole_number("num_ranks", num_ranks, 1)
    if batch_size is not None:
        return num_ranks * whole_number("batch_size", batch_size, 1)
    return whole_number("global_batch_size", global_batch_size, 1)


def whole_number(name: str, value: Any, least: int) -> int:
    """A number as a plain `int`, whichever integer type it comes in.

    Raises:
        SpecError: It is no integer, or less than `least`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise SpecError(f"{name} is {value!r}, not a whole number") from None
    if number < least:
        raise SpecError(f"{name} is {number}, not {least} or more")
    return number


@dataclass(frozen=True)
class CacheOptions:
    directory: str
    max_bytes: int

    @classmethod
    def of(cls, directory: str | None, size: int | str) -> CacheOptions | None:
        if directory is None:
            return None
        if os.path.exists(directory) and not os.path.isdir(directory):
            raise SpecError(
                "the cache needs a folder, and this is a file",
                where={"path": directory},
                hint="Name a folder on a local disk; it is made if it is missing.",
            )
        return cls(str(directory), parse_bytes(size))


def parse_bytes(size: int | str) -> int:
    """A number of bytes.

    Raises:
        SpecError: It is no positive size, or its unit is unknown.

    >>> parse_bytes("128 MiB"), parse_bytes("1.5GB"), parse_bytes(4096)
    (134217728, 1500000000, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise SpecError(
            f"{size!r} is no size in bytes", hint="Write it like 134217728, 128MiB or 1.5GB."
        )
    return int(float(match[1]) * unit)
