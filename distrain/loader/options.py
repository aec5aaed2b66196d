"""A loader's numbers, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distrain.errors import SpecError
from distrain.loader.byte_size import parse_bytes
from distrain.partition import SHUFFLES


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
        for name in ("parts_per_chunk", "prefetch_batches", "decode_threads"):
            if options[name] < 1:
                raise SpecError(f"{name} is {options[name]}, not 1 or more")
        if options["seed"] < 0:
            raise SpecError(f"seed is {options['seed']}, not 0 or more")
        return cls(shuffle=mode, **options)

    def order_of_rows(self) -> dict[str, int | str | bool]:
        """The options that the order of rows depends on."""
        names = ("global_batch_size", "shuffle", "seed", "lanes", "drop_last", "parts_per_chunk")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class CacheOptions:
    """Where decoded row groups are kept, and how many bytes of them."""

    directory: str
    max_bytes: int

    @classmethod
    def of(cls, directory: str | None, size: int | str) -> CacheOptions | None:
        """The options, or `None` without a folder."""
        return None if directory is None else cls(str(directory), parse_bytes(size))
