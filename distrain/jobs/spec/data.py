"""The section `data`: where the rows are and how they are read.

`docs/spec.md` and the published JSON Schema show the field descriptions.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WrapValidator, field_validator, model_validator
from pydantic_core import PydanticCustomError

from distrain.errors import SpecError
from distrain.jobs.spec.fields import REMOVED_KEY, PositiveInt, Real, Section, Whole, check_url_of
from distrain.jobs.spec.row_filter import parse_filter

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TIME = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


def _number_or_time(value: Any, _: Any) -> Any:
    """Validate `WindowsSpec.size`: return a valid value, raise `ValueError` for any other.

    pydantic's own validation would report a mistake for each type of the union.
    """
    if value is None or (isinstance(value, str) and _TIME.fullmatch(value)):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**63:
        return value
    raise ValueError("a number above 0, or a time such as 30m, 12h, 7d is needed")


class WindowsSpec(Section):
    """Windows of the training rows, which are trained strictly one after another."""

    by: str = Field(
        description="What determines the windows and their order: a column of dates, times or "
        "numbers; the key of folders named `key=value`; or `file`, for one window per file.",
        min_length=1,
    )
    size: Annotated[float | str | None, WrapValidator(_number_or_time)] = Field(
        None,
        description="The length of a window: a time, such as `12h` or `7d`, counted from 1970 in "
        "UTC, or a number. Null: each value is a window.",
    )

    @property
    def size_ns(self) -> int | None:
        """`size` in nanoseconds if it is a time such as `12h`; `None` for a number or `None`."""
        found = _TIME.fullmatch(self.size) if isinstance(self.size, str) else None
        return int(found[1]) * _UNITS_S[found[2]] * 10**9 if found else None


NotNegative = Annotated[Real, Field(ge=0)]


class FilesSpec(Section):
    """The paths of the training rows, the validation rows and their schema."""

    train: tuple[str, ...] = Field(
        description="The parquet files with the training rows: paths, folders, globs or URLs.",
        min_length=1,
    )
    valid: tuple[str, ...] = Field(
        (),
        description="The parquet files with the validation rows, which are scored during training.",
    )
    schema_path: str = Field(
        "auto",
        alias="schema",
        description="A schema file or its folder. `auto`: the schema file next to the training "
        "files.",
    )

    @field_validator("train", "valid", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else value

    @field_validator("train", "valid")
    @classmethod
    def _good_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            check_url_of(url)
        return value


READING = "reading"
"""The key of `RowsSpec.reading` in the `about` of a saved model."""


class RowsSpec(Section):
    """Which rows a table has and how their values are read: the options of a `Dataset`."""

    filter: str | None = Field(
        None,
        description="The condition for rows of `train` and `valid`, such as `country == 'de' and "
        "age > 18`; null: all rows.",
    )
    hive: bool = Field(
        False, description="Whether the names of folders such as `key=value` are read as columns."
    )
    fill_null_id: Whole | None = Field(
        None, ge=0, description="The replacement for null ids; null: null ids are an error."
    )
    fill_null_value: Real | None = Field(
        None, description="The replacement for null numbers; null: null numbers are an error."
    )
    part_size: str | None = Field(
        None,
        description="The size, such as `64MB`, up to which neighbouring row groups of a file are "
        "shuffled as one part; null: each row group is a part.",
    )
    windows: WindowsSpec | None = Field(
        None,
        description="Divide the training rows into windows, such as days, which are trained in "
        "their order. Rows are shuffled only within a window. Null: one window with all rows.",
    )

    @property
    def reading(self) -> dict[str, Any]:
        """The options with which a model's new rows must also be read, as JSON values."""
        return self.model_dump(include={"hive", "fill_null_id", "fill_null_value"})

    @field_validator("filter")
    @classmethod
    def _good_filter(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                parse_filter(value)
            except SpecError as error:
                raise ValueError(str(error)) from None
        return value


class LoadingSpec(Section):
    """How rows are read, shuffled and kept: the options of a `Loader`."""

    reader: Literal["auto", "arrow", "cudf"] = Field(
        "auto",
        description="What decodes row groups. `arrow`: the CPU. `cudf`: the GPU. `auto` is "
        "`arrow` until `cudf` has been run on a GPU.",
    )
    gpu_memory_fraction: Real = Field(
        0.1,
        gt=0,
        lt=1,
        description="The maximum share of the GPU's memory for the memory pool of the cudf reader.",
    )
    cache_dir: str | None = Field(
        None,
        description="A folder on each host's disk for decoded rows, which `distrain pack` can "
        "fill in advance; null: no cache.",
    )
    cache_size: str = Field("100GB", description="The maximum size of `cache_dir`.")
    max_list_length: dict[str, PositiveInt] = Field(
        {},
        description="The maximum list length, by list column; the first items are kept. The saved "
        "model and its exports apply the same limit. `model.max_length` limits lists of events.",
    )
    shuffle: Literal["chunk", "full", "none"] = Field(
        "chunk",
        description="`chunk`: shuffle the row groups, and the rows within a chunk of "
        "`parts_per_chunk` parts. `full`: shuffle all rows; each rank keeps its share of an epoch "
        "in memory. `none`: no shuffling.",
    )
    parts_per_chunk: PositiveInt = Field(
        1, description="The number of parts whose rows are shuffled together."
    )
    prefetch_batches: PositiveInt = Field(
        4, description="The number of batches that the loader prepares in advance."
    )
    decode_threads: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="The number of threads per rank that decode parquet. `auto`: 1 on a CPU; on a "
        "GPU, two less than the rank's share of the machine's or container's cores, from 1 to 10.",
    )
    drop_last: bool = Field(
        False, description="Whether to omit an epoch's last batch if it has fewer rows."
    )
    retry_s: Real = Field(
        300.0,
        ge=0,
        description="How long a rank retries reads in seconds, with increasing pauses, if the "
        "storage does not answer. Then the attempt ends, and the job restarts from its last "
        "checkpoint. Keep it below `deadlines.collective_s`.",
    )


_REMOVED = ("workflow", "shuffle_dir")


class DataSpec(LoadingSpec, RowsSpec, FilesSpec):
    """The paths of the rows, and how rows are read."""

    # Paths may differ, because checkpoints contain the files' fingerprints, which are compared. The
    # schema may, because the columns are compared together with the embedding tables.
    may_differ = (
        *("train", "valid", "schema", "reader", "prefetch_batches", "decode_threads"),
        *("gpu_memory_fraction", "cache_dir", "cache_size", "retry_s"),
    )

    negatives: Real = Field(
        1.0,
        gt=0,
        le=1,
        description="The share of training rows with label 0 to keep, the same rows in every "
        "epoch. Scores are corrected as if all rows had been used.",
    )
    weight: str | None = Field(
        None,
        description="The column of row weights, 0 or more; a row of weight 2 counts as two rows. "
        "Null: the column with the tag `weight` in the schema, if any.",
    )
    class_weight: dict[str, dict[Whole, NotNegative]] = Field(
        {},
        description="Factors of the row weights, by task or target and by label, such as `{click: "
        "{1: 3.0}}`. Other labels have the factor 1.",
    )

    @property
    def logit_shift(self) -> float:
        """The logarithm of `negatives`, 0 or less.

        It is added to the first target's logits outside of training, to correct them for the rows
        with label 0 that training left out.
        """
        return math.log(self.negatives)

    @property
    def needs_gpu(self) -> bool:
        return self.reader == "cudf"

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, values: Any) -> Any:
        # Specs of version 0.2.0 have the options `workflow`, for training on raw rows, and
        # `shuffle_dir`, which is ignored because it does not change the order of rows.
        if isinstance(values, Mapping):
            if values.get("workflow") is not None:
                raise PydanticCustomError(
                    REMOVED_KEY,
                    "the key workflow was removed: prepare raw rows with `distrain prep RAW "
                    "--workflow WORKFLOW --out DIR`, and train on DIR/train",
                )
            return {key: value for key, value in values.items() if key not in _REMOVED}
        return values
