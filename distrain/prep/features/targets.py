"""The settings of targets and of windows in a features document.

Field descriptions appear in the published JSON Schema.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from distrain.jobs.spec.data import WindowsSpec
from distrain.jobs.spec.fields import Real, Section
from distrain.prep.features.columns import ColumnName
from distrain.schema.column import TARGET_TAGS, ColumnSchema, Tags

Scalar = bool | int | float | str


def as_text(value: object) -> object:
    """Return a date or time as ISO 8601 text; other values unchanged."""
    return value.isoformat() if isinstance(value, datetime.date | datetime.datetime) else value


Value = Annotated[Scalar, BeforeValidator(as_text)]

_COMPARISONS = ("at_least", "above", "at_most", "below", "equals", "one_of")


def or_name(schema: dict[str, Any]) -> None:
    """Change a field's JSON Schema so that it also accepts a string."""
    reference = {"$ref": schema.pop("$ref")} if "$ref" in schema else {}
    schema["anyOf"] = [{"type": "string"}, reference]


def known_name(target: str) -> str:
    """Return the name of the column that is 1 where the label of `target` is known, else 0."""
    return f"{target}_known"


class TargetSpec(Section):
    """The value to predict. A binary target without a comparison needs 0 and 1, or booleans."""

    column: ColumnName = Field(description="The input's column.")
    kind: Literal["binary", "regression", "multiclass"] = Field(
        "binary", description="`binary`: 0 and 1; `regression`: numbers; `multiclass`: classes."
    )
    classes: Annotated[int, Field(ge=2)] | tuple[Value, ...] | None = Field(
        None,
        description="For `multiclass`: the number of classes if the column holds integers "
        "from 0 on, otherwise the values of the classes.",
    )
    at_least: Real | None = Field(None, description="1 from this number on, else 0.")
    above: Real | None = Field(None, description="1 above this number, else 0.")
    at_most: Real | None = Field(None, description="1 up to this number, else 0.")
    below: Real | None = Field(None, description="1 below this number, else 0.")
    equals: Value | None = Field(None, description="1 for this value, else 0.")
    otherwise: Value | None = Field(
        None,
        description="With `equals`: the other value, which is 0. Values that are neither are bad "
        "values. Without it, all other values are 0.",
    )
    one_of: tuple[Value, ...] | None = Field(
        None, min_length=1, description="1 for these values, else 0."
    )
    missing: Literal["error", "drop", "unknown"] = Field(
        "error",
        description="What to do with rows without a value: `drop` drops them; `unknown`, "
        "only in `more_targets`, keeps them for the other targets.",
    )
    is_feature: bool = Field(
        False,
        description="Whether the column may also be a feature. Usually that gives the answer to "
        "the model.",
    )
    placeholder: bool = Field(
        False,
        description="Set by `--infer` if the target is a guess; `prep` rejects the document "
        "until it is removed.",
    )

    @property
    def comparison(self) -> tuple[str, Any] | None:
        """The comparison that makes the label, such as `("above", 4)`; `None` without one."""
        given = [(key, getattr(self, key)) for key in _COMPARISONS]
        return next(((key, value) for key, value in given if value is not None), None)

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        is_one = isinstance(value, str | int | float)
        return {"column": value} if is_one else value

    @model_validator(mode="after")
    def _one_comparison(self) -> TargetSpec:
        given = [key for key in _COMPARISONS if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"only one comparison is allowed, but {' and '.join(given)} are given")
        if given and self.kind != "binary":
            raise ValueError(f"{given[0]} makes binary labels, but kind is {self.kind}")
        if self.otherwise is not None and self.equals is None:
            raise ValueError("otherwise needs equals: it is the label's other value")
        if self.otherwise is not None and self.otherwise == self.equals:
            raise ValueError("otherwise and equals are the same value")
        if (self.kind == "multiclass") != (self.classes is not None):
            raise ValueError(
                "`kind: multiclass` and `classes` need each other; `classes` is the number of "
                "classes or the list of all values: [red, green, blue]"
            )
        if isinstance(self.classes, tuple) and not 2 <= len(self.classes) == len({*self.classes}):
            raise ValueError("classes must have at least two different values")
        return self

    def schema_of(self, name: str) -> ColumnSchema:
        """Return the schema of the output column of labels, called `name`."""
        classes = len(self.classes) if isinstance(self.classes, tuple) else self.classes
        known = {"known": known_name(name)} if self.missing == "unknown" else {}
        tags = (Tags.TARGET, TARGET_TAGS[self.kind])
        return ColumnSchema(name, "float32", tags, classes, properties=known)

    def known_schema_of(self, name: str) -> ColumnSchema | None:
        """Return the schema of the column that marks known labels of the label column `name`.

        `None` unless labels may be unknown.
        """
        if self.missing != "unknown":
            return None
        return ColumnSchema(known_name(name), "float32", (Tags.TASK_WEIGHT,))


class TableWindows(WindowsSpec):
    """The windows of a table's rows, on which jobs train one after another.

    The column that defines them is written along with the features.
    """

    epoch: Literal["s", "ms", "us", "ns"] | None = Field(
        None,
        description="The unit, if the column holds integers: the time since 1970 in this unit.",
    )

    @model_validator(mode="after")
    def _of_times(self) -> TableWindows:
        if self.epoch is not None and self.size_ns is None:
            raise ValueError("epoch needs a size that is a time, such as 1d")
        return self
