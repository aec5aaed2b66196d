"""A loader's numbers, checked."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import Any

from distrain.errors import SpecError
from distrain.loader.byte_size import parse_bytes
from distrain.partition import SHUFFLES

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
class LoaderOptions:
    """What a rank's stream depends on, apart from the data; see `Loader` for each."""

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

    @classmethod
    def checked(cls, *, shuffle: str | bool, **options: Any) -> LoaderOptions:
        """The options, if they can be used.

        Raises:
            SpecError: One is out of its range.
        """
        mode = ("chunk" if shuffle else "none") if isinstance(shuffle, bool) else shuffle
        if mode not in SHUFFLES:
            raise SpecError(f"unknown shuffle {mode!r}", hint=f"Allowed: {', '.join(SHUFFLES)}.")
        for name, least in _LEAST.items():
            options[name] = whole_number(name, options[name], least)
        if options["rank"] >= options["num_ranks"]:
            raise SpecError(f"rank {options['rank']} is not in 0..{options['num_ranks'] - 1}")
        return cls(shuffle=mode, **options)

    def order_of_rows(self) -> dict[str, int | str | bool]:
        """The options that the order of rows depends on."""
        names = ("global_batch_size", "shuffle", "seed", "lanes", "drop_last", "parts_per_chunk")
        return {name: getattr(self, name) for name in names}


def rows_over_all_ranks(
    batch_size: int | None, global_batch_size: int | None, num_ranks: int
) -> int:
    """The global batch size, from whichever of the two is given.

    Raises:
        SpecError: Both or none are given, or a number is out of its range.
    """
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
    """Where decoded row groups are kept, and how many bytes of them."""

    directory: str
    max_bytes: int

    @classmethod
    def of(cls, directory: str | None, size: int | str) -> CacheOptions | None:
        """The options, or `None` without a folder.

        Raises:
            SpecError: The folder's name is that of a file, or the size is none.
        """
        if directory is None:
            return None
        if os.path.exists(directory) and not os.path.isdir(directory):
            raise SpecError(
                "the cache needs a folder, and this is a file",
                where={"path": directory},
                hint="Name a folder on a local disk; it is made if it is missing.",
            )
        return cls(str(directory), parse_bytes(size))
