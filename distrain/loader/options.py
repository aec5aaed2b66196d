"""Validates a loader's options, and parses sizes like "50GB"."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, model_validator

from distrain.errors import SpecError
from distrain.jobs.spec.data import LoadingSpec
from distrain.jobs.spec.fields import PositiveInt, Section, Whole

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True)
class FetchOptions:
    """How a loader requests ranges of remote files.

    Attributes:
        connections: Maximum number of requests in flight.
        range_bytes: Maximum size of a request.
        gap_bytes: Two ranges with a gap of at most this size are read as one, with the gap.
        ahead_bytes: Maximum size of prefetched row groups that are not yet in use; a single larger
            row group is allowed.
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
        """Maximum memory of fetched bytes: of prefetched row groups and of requests in flight.

        A request counts twice, for the received parts and for the bytes that join them.
        """
        return self.ahead_bytes + 2 * self.connections * self.range_bytes


class LoaderOptions(LoadingSpec):
    """The options of a rank's loader: those of the job spec, and the rank's number."""

    decode_threads: PositiveInt = 1
    global_batch_size: PositiveInt
    seed: Annotated[Whole, Field(ge=0)] = 0
    lanes: PositiveInt = 24
    rank: Annotated[Whole, Field(ge=0)] = 0
    num_ranks: PositiveInt = 1
    pin_memory: bool = False
    fetch: FetchOptions = FetchOptions()

    @model_validator(mode="after")
    def _is_one_of_the_ranks(self) -> LoaderOptions:
        if self.rank >= self.num_ranks:
            raise ValueError(f"rank {self.rank} is not in 0..{self.num_ranks - 1}")
        return self

    @property
    def loads_ahead(self) -> int:
        """The maximum number of row groups that are loaded before the current step needs them.

        They wait for a thread, are being decoded, or are finished.
        """
        return 2 * self.decode_threads

    def order_of_rows(self) -> dict[str, int | str | bool]:
        """Return the options that determine the order of rows, by name."""
        names = ("global_batch_size", "shuffle", "seed", "lanes", "drop_last", "parts_per_chunk")
        return {name: getattr(self, name) for name in names}

    def check_cache(self) -> None:
        """Raise a `SpecError` if the cache's folder or size cannot be used."""
        if self.cache_dir is None:
            return
        if os.path.exists(self.cache_dir) and not os.path.isdir(self.cache_dir):
            raise SpecError(
                "the cache needs a folder, and this is a file",
                where={"path": self.cache_dir},
                hint="Name a folder on a local disk; it is created if it is missing.",
            )
        parse_bytes(self.cache_size)


def checked(kind: type[SectionT], keywords: Mapping[str, Any]) -> SectionT:
    """Return a section of the job spec from keyword arguments, after validation.

    Raises:
        SpecError: Some arguments are invalid; all problems are listed.
    """
    try:
        return kind.model_validate({name: _as_in_a_spec(v) for name, v in keywords.items()})
    except ValidationError as error:
        from distrain.jobs.spec.explain import explain_all  # imports the whole job spec

        raise SpecError("\n".join(explain_all(error.errors(), kind))) from None


def refuse_two_names(
    name: str, value: object, of_section: str, options: Mapping[str, object]
) -> None:
    """Raise a `SpecError` if an argument is also given by its name in the job spec, `of_section`.

    `value` is the argument `name`, or `None`; `options` are the other keyword arguments.
    """
    if value is not None and of_section in options:
        raise SpecError(
            f"{name} and {of_section} are two names of one option", hint="Give one of them."
        )


def _as_in_a_spec(value: Any) -> Any:
    """Return a value in the types of a job spec: `int` for NumPy's integers, `str` for paths.

    The values of mappings are converted, too.
    """
    if isinstance(value, Mapping):
        return {name: _as_in_a_spec(inner) for name, inner in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    is_number = hasattr(value, "__index__") and not isinstance(value, bool)
    return operator.index(value) if is_number else value


def rows_over_all_ranks(
    batch_size: int | None, global_batch_size: int | None, num_ranks: int
) -> int:
    """Return the number of rows of a step over all ranks, from the size that is not `None`.

    Raises:
        SpecError: Both sizes are given, or neither, or a number is not a positive integer.
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
    """Return a number of any integer type as a plain `int`, if it is at least `least`.

    Raises:
        SpecError: The value is not an integer, or less than `least`; the message contains `name`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise SpecError(f"{name} is {value!r}, not an integer") from None
    if number < least:
        raise SpecError(f"{name} is {number}, not {least} or more")
    return number


def parse_bytes(size: int | str) -> int:
    """Return the number of bytes that a size means.

    Raises:
        SpecError: The size is not positive, or its unit is unknown.

    >>> parse_bytes("128 MiB"), parse_bytes("1.5GB"), parse_bytes(4096)
    (134217728, 1500000000, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise SpecError(
            f"{size!r} is not a size in bytes", hint="Write it like 134217728, 128MiB or 1.5GB."
        )
    return int(float(match[1]) * unit)
