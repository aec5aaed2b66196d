"""A workflow's document, `workflow.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distrain.errors import DataError
from distrain.etl.column_group import ColumnGroup
from distrain.etl.operators import (
    Categorify,
    Clip,
    FillMissing,
    ListSlice,
    LogOp,
    Normalize,
    Operator,
    Vocabulary,
)

VERSION = 1


def group_to_json(group: ColumnGroup) -> dict[str, Any]:
    """A group's columns and operators as JSON values."""
    operators = [{"kind": operator.kind, **operator.to_json()} for operator in group.operators]
    return {"columns": list(group.columns), "operators": operators}


def group_from_json(document: Mapping[str, Any], categories: Path) -> ColumnGroup:
    """The inverse, with the vocabularies found in `categories`.

    Raises:
        DataError: An operator is unknown or a vocabulary cannot be read.
        KeyError, TypeError: A field is missing or unknown.
    """
    columns = tuple(document["columns"])
    operators = [_operator_from_json(o, columns, categories) for o in document["operators"]]
    return ColumnGroup(columns, tuple(operators))


def _operator_from_json(
    document: Mapping[str, Any], columns: tuple[str, ...], categories: Path
) -> Operator:
    settings = {key: value for key, value in document.items() if key != "kind"}
    match document["kind"]:
        case "FillMissing":
            return FillMissing(**settings)
        case "Clip":
            return Clip(**settings)
        case "ListSlice":
            return ListSlice(**settings)
        case "LogOp":
            return LogOp(**settings)
        case "Normalize":
            return Normalize.from_json(settings)
        case "Categorify":
            domain = settings.get("domain")
            found = (
                {column: Vocabulary.load(categories, column) for column in columns}
                if domain is None
                else dict.fromkeys(columns, Vocabulary.load(categories, domain))
            )
            return Categorify(**settings, vocabularies=found)
        case kind:
            raise DataError(f"unknown operator {kind!r} in the saved workflow")


def read_document(file: Path) -> dict[str, Any]:
    """The content of `workflow.json`.

    Raises:
        DataError: It is missing, no JSON, or of another version.
    """
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise DataError(
            "the saved workflow cannot be read",
            where={"file": str(file), "cause": str(error)},
            hint="Give the `workflow` folder that `distrain prep` wrote.",
        ) from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else None
        raise DataError(
            f"the saved workflow has version {found}, not {VERSION}", where={"file": str(file)}
        )
    return document
