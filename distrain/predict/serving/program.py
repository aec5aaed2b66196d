"""Describes a workflow as a program for `preprocess`: how to read raw columns, and their steps."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.errors import InputError
from distrain.models.saved_model import SavedModel
from distrain.predict.serving.deltas import ORDER, save_order
from distrain.prep.column_group import TEXTS, ColumnGroup
from distrain.prep.features.columns import CALENDAR, ColumnSpec, UnchangedSpec
from distrain.prep.features.config import FeatureConfig
from distrain.prep.operators.buckets import HashBucket
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.encodings import CountEncode, TargetEncode
from distrain.prep.operators.list_slice import ListSlice
from distrain.prep.operators.numbers import Clip, FillMissing, LogOp
from distrain.prep.operators.operator import takes_of
from distrain.prep.raw_values import BETWEEN_TEXTS
from distrain.prep.vocabulary import Vocabulary, is_text
from distrain.prep.workflow import HOLDS, Workflow

_ANY = ("text", "integer", "number", "bool", "decimal", "time")
_NUMBERS = ("integer", "number", "bool", "decimal")
_VALUES = (*_NUMBERS, "text")
_ENCODINGS = (CountEncode, TargetEncode)
_FLOAT32_MAX, _FLOAT64_MAX = (float(np.finfo(one).max) for one in (np.float32, np.float64))

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Program:
    """The program of a workflow (`program.json`), and the vocabularies that it uses, by name."""

    document: dict[str, Any]
    vocabularies: Mapping[str, Vocabulary]
    # for the vocabularies of `CountEncode` and `TargetEncode`: the encoded number of each id
    numbers: Mapping[str, Floats]


def program_of(
    workflow: Workflow, features: FeatureConfig, saved: SavedModel, form: str
) -> Program:
    """Return a workflow's program for the columns that a model reads.

    Args:
        features: Describes the workflow's raw rows.
        form: The default form of rows, one of `preprocess.FORMS`.

    Raises:
        InputError: A column cannot be made from one raw row, for example because it comes from a
            history or a side table. All such columns are listed.
    """
    inputs = saved.model.inputs
    lists = (*inputs.list_names, *inputs.number_names)
    names = (*inputs.categorical_names, *inputs.continuous_names, *lists)
    groups = {column: group for group in workflow.groups for column in group.columns}
    unserved = {name: why for name in names for why in _mistakes(name, groups, workflow, features)}
    if unserved:
        raise InputError(
            "the workflow cannot be exported: these columns cannot be made from one raw row",
            where={f"column {name}": why for name, why in unserved.items()},
            hint="Leave --with-workflow out and score ids, which `distrain prep "
            "--workflow` makes; or train without these columns (sections model and data).",
        )
    vocabularies: dict[str, Vocabulary] = {}
    numbers: dict[str, Floats] = {}
    columns = []
    for name in names:
        spec = features.document.columns[name]
        listed = saved.schema[name].holds_lists
        holds_text = TEXTS in workflow.record.get(HOLDS, {}).get(name, "")
        operators = groups[name].operators
        column, learnt = column_program(name, operators, spec, listed, holds_text)
        if (most := saved.schema[name].max_list_length) is not None:  # the loader cuts lists
            column["slices"].append([0, most])
        columns.append(column)
        vocabularies |= learnt
        for one in operators:
            if isinstance(one, _ENCODINGS):
                numbers[name] = _numbers(one, name)
    layout = features.document.format
    text = {
        "null_values": list(layout.null_values),
        "decimal_point": layout.decimal_point,
        "timestamp": layout.timestamp,
    }
    document = {
        "form": form,
        "text": text,
        "columns": columns,
        "categorical": list(inputs.categorical_names),
        "continuous": list(inputs.continuous_names),
        "lists": [[name, inputs.schema[name].event] for name in lists],
        "crosses": {
            BETWEEN_TEXTS.join(spec.cross): list(spec.cross)
            for spec in (features.document.columns[name] for name in names)
            if spec.cross
        },
        "vocabularies": {
            name: {**described(one), "has_numbers": name in numbers}
            for name, one in vocabularies.items()
        },
    }
    return Program(document, vocabularies, numbers)


def column_program(
    name: str,
    operators: Sequence[Any],
    spec: ColumnSpec,
    lists: bool,
    holds_text: bool = False,
) -> tuple[dict[str, Any], dict[str, Vocabulary]]:
    """Return the description of a column in a program, and the vocabularies that it uses, by name.

    Args:
        operators: The operators of the workflow that make the column, in order.
        spec: The column's entry in the features document.
        lists: Whether the column holds lists.
        holds_text: Whether the column holds texts. If a vocabulary of the column's own values
            exists, it decides instead.
    """
    vocabularies = {}
    for one in operators:
        if isinstance(one, Categorify):
            vocabularies[one.domain or name] = one.vocabularies[name]
        elif isinstance(one, _ENCODINGS):
            vocabularies[name] = _vocabulary(one, name)
    if vocabularies and not any(isinstance(one, HashBucket) for one in operators):
        holds_text = is_text(next(iter(vocabularies.values())).values.type)
    column = {
        "name": name,
        "source": BETWEEN_TEXTS.join(spec.sources(name)),
        "lists": lists,
        "separator": spec.separator,
        "slices": list(_slices(operators, spec)),
        **_reading(spec, operators, holds_text),
    }
    column["steps"] += [
        {"kind": one.kind, **one.served(name)}
        for one in operators
        if not isinstance(one, ListSlice)
    ]
    return column, vocabularies


def _vocabulary(encoding: CountEncode | TargetEncode, column: str) -> Vocabulary:
    values = encoding.tables[column].values.drop_null()
    return Vocabulary(values, pa.nulls(len(values), pa.int64()))


def _numbers(encoding: CountEncode | TargetEncode, column: str) -> Floats:
    """Return the number, such as a count, by which an operator replaces each id, float64 `[ids]`.

    The ids are those of the vocabulary from `_vocabulary`.

    If the fit has seen no missing values, missing values get the number of unseen values.
    """
    table = encoding.tables[column]
    is_gap = table.values.is_null().to_numpy(zero_copy_only=False)
    *known, unknown = encoding.numbers(table)
    of_gap = np.array(known)[is_gap]
    numbers = [0.0, *(of_gap if len(of_gap) else [unknown]), unknown]
    return np.concatenate([numbers, np.array(known)[~is_gap]])


def described(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the arguments of `steps.Vocabulary` that are not in the vocabulary's files."""
    holds = "text" if is_text(vocabulary.values.type) else "integer"
    return {"holds": holds, "num_oov": vocabulary.num_oov}


def _mistakes(
    name: str,
    groups: Mapping[str, ColumnGroup],
    workflow: Workflow,
    features: FeatureConfig,
) -> Iterator[str]:
    """Yield the reasons why a column cannot be made from one raw row, as texts.

    Each text begins with the operator or the field that is the cause.
    """
    if name not in groups:
        is_history = workflow.history is not None and name.startswith("history_")
        what = "no operator: the workflow does not make it"
        yield "History: it reads earlier rows" if is_history else what
        return
    joined = {column for join in features.document.joins for column in join.columns}
    if joined.intersection(features.document.columns[name].sources(name)):
        yield "joins: it comes from a side table"
    for one in groups[name].operators:
        # Operators without `takes` compute numbers, except these two, which keep the values' type.
        keeps_values = hasattr(one, "takes") or isinstance(one, FillMissing | ListSlice)
        if groups[name].is_categorical and not keeps_values:
            yield f"{one.kind}: it comes before Categorify"


def _slices(operators: Sequence[Any], spec: ColumnSpec) -> Iterator[list[int | None]]:
    """Yield the start and end of the Python slices that are applied to lists, in order."""
    if spec.list_slice is not None:
        yield [spec.list_slice.start, spec.list_slice.end]
    for one in operators:
        if isinstance(one, ListSlice):
            has_start = one.end is not None or one.start < 0
            yield [one.start, one.end] if has_start else [0, one.start]


def _reading(spec: ColumnSpec, operators: Sequence[Any], holds_text: bool) -> dict[str, Any]:
    """Return those entries of a column's description in a program that say how to read it.

    `takes` has the accepted kinds of values, and `to` the kind to which they are converted, as
    `distrain.prep` does for a table with types. `steps` has the steps before those of the
    operators.
    """
    is_unchanged = isinstance(spec, UnchangedSpec)
    taken = takes_of(operators)
    holds_text &= taken == "categories"
    to: str = "text" if holds_text else "integer"
    takes: tuple[str, ...] = _ANY if holds_text else _NUMBERS
    steps: list[dict[str, Any]] = []
    if taken == "presence":
        to, takes = "presence", _ANY
    elif spec.cross:
        to, takes = "text", ("text",)
    elif spec.as_ in CALENDAR:
        to, takes = "time", (_VALUES if spec.epoch is not None else ("time", "text"))
        whole = taken == "categories"
        steps.append({"kind": "calendar", "part": spec.as_, "whole": whole})
    elif taken == "numbers":
        to, takes = "number", (_NUMBERS if is_unchanged else (*_NUMBERS, "text"))
    elif is_unchanged:  # the table's values are used unchanged
        takes = tuple(kind for kind in _ANY if kind != "integer") if holds_text else ("integer",)
    elif spec.as_ in (None, "integer"):
        takes = _VALUES
    is_number = taken == "numbers" and not any(isinstance(one, Categorify) for one in operators)
    if is_number and not is_unchanged:
        clips = [one for one in operators if isinstance(one, Clip)]
        low = all(clip.min is None for clip in clips)
        high = all(clip.max is None for clip in clips)
        # A logarithm fits into float32, but that of infinity is none.
        most = _FLOAT64_MAX if any(isinstance(one, LogOp) for one in operators) else _FLOAT32_MAX
        bounds = {"low": -_FLOAT32_MAX if low else None, "high": most if high else None}
        steps.append({"kind": "limits", **bounds})
    return {
        "to": to,
        "takes": list(takes),
        "epoch": spec.epoch,
        "is_whole": taken == "numbers" and spec.as_ == "integer",
        "is_canonical": to == "text" and spec.as_ is None and not is_unchanged,
        "steps": steps,
    }


def write_vocabulary(folder: Path, name: str, vocabulary: Vocabulary) -> None:
    """Write the files that `steps.Vocabulary` reads; keys are in the order of their ids."""
    values, files = vocabulary.values, dict[str, Any]()
    if is_text(values.type):
        texts = values.cast(pa.large_binary()).to_pylist()
        keys = np.array([*map(zlib.crc32, texts)], np.uint32)
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        files = {"keys": keys, "offsets": ends, "text": np.frombuffer(b"".join(texts), np.uint8)}
    else:
        whole = values.cast(pa.int64()) if pa.types.is_null(values.type) else values
        files = {"keys": whole.to_numpy(zero_copy_only=False).astype(np.int64)}
    for what, content in files.items():
        np.save(folder / f"{name}.{what}.npy", content)
    save_order(folder / f"{name}{ORDER}")
