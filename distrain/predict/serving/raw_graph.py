"""Makes an ONNX graph of raw columns: a workflow's steps, followed by the model's own graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from distrain.predict.serving.onnx_steps import (
    DTYPES,
    EMPTY,
    STEPS,
    Nodes,
    Tensor,
    as_numbers,
    tensor,
)
from distrain.predict.serving.program import Program
from distrain.prep.raw_values import BETWEEN_TEXTS, refuse
from distrain.prep.steps import Values

RAW_GRAPH = "raw.onnx"

_MODEL, _MISSING = "model/", ".missing"
_HOW = ("lists", "separator", "epoch", "is_canonical")
_MOST_BYTES = 1 << 30
"""Limit for the values of a column's vocabularies: an ONNX file is limited to 2 GiB."""
_NO_BYTES = "the hash depends on the bytes of texts, which ONNX cannot read"


@dataclass(frozen=True)
class RawInput:
    """A raw column that the graph reads."""

    name: str
    # "text" (numbers spelled as by `canonical`), "integer", "number" (float64, NaN for a missing
    # value), "time" (int64, microseconds since 1970; times with a zone in UTC), or "presence": the
    # graph reads only `NAME.missing`
    kind: str
    column: str  # a column of the program that is read from this input
    lists: bool  # whether its items are in `NAME.values`, and each row's count in `NAME.lengths`

    @property
    def values(self) -> str:
        """The name of the input with the column's values."""
        return f"{self.name}.values" if self.lists else self.name

    @property
    def missing(self) -> str:
        """The name of the optional input that marks missing values."""
        return self.values + _MISSING

    @property
    def names(self) -> set[str]:
        """The names of all graph inputs that this column may have."""
        return {self.values, self.missing, *([f"{self.name}.lengths"] if self.lists else [])}

    def fed(self, values: Any, lengths: Sequence[int] | None) -> dict[str, Any]:
        """Return the arrays to pass to the graph for this column, by the names of its inputs.

        `values` and `lengths` are those of the column in the result of `Preprocessor.read`.
        """
        feeds: dict[str, Any] = {}
        shape = (-1,) if self.lists else (-1, 1)
        if self.lists:
            feeds[f"{self.name}.lengths"] = np.array(lengths, np.int64)
        if self.kind == "time":
            values = [None if np.isnat(one) else int(one.astype(np.int64)) for one in values]
        elif self.kind == "presence":
            values = [None if np.isnan(one) else one for one in values]
        if self.kind != "number":
            feeds[self.missing] = np.array([one is None for one in values], bool).reshape(shape)
            values = [EMPTY.get(self.kind) if one is None else one for one in values]
        if self.kind != "presence":
            feeds[self.values] = np.array(values, DTYPES[self.kind]).reshape(shape)
        return feeds


def raw_inputs(
    program: Program, targets: Sequence[Mapping[str, Any]]
) -> tuple[list[RawInput], dict[str, str]]:
    """Return the graph's raw columns, and the reasons why columns of the program do not fit ONNX.

    The reasons are by column name. If there are any, the graph cannot be written.

    Args:
        targets: The entry `targets` of `manifest.json`.
    """
    columns = program.document["columns"]
    outputs = {name for target in targets for name in target["columns"]}
    unserved = {c["name"]: why for c in columns if (why := _mistake(c, program, outputs))}
    inputs = []
    for source in dict.fromkeys(column["source"] for column in columns):
        readings = [column for column in columns if column["source"] == source]
        kinds = {column["to"] for column in readings} - {"presence"}
        if len(kinds) > 1 and kinds != {"integer", "number"}:
            both = " and as ".join(sorted(kinds))
            unserved |= {c["name"]: f"{source} is read as {both}" for c in readings}
        elif any(c.get(how) != readings[0].get(how) for c in readings for how in _HOW):
            unserved |= {c["name"]: f"{source} is read in two ways" for c in readings}
        kind = "integer" if "integer" in kinds else next(iter(kinds), "presence")
        read = next(column for column in readings if column["to"] == kind)
        inputs.append(RawInput(source, kind, read["name"], read["lists"]))
    names = Counter(name for one in inputs for name in one.names)
    for one in inputs:
        if any(names[name] > 1 for name in one.names):
            unserved[one.column] = f"an input of {one.name} has the name of another column's"
    return inputs, unserved


def _mistake(column: Mapping[str, Any], program: Program, outputs: set[str]) -> str | None:
    """Return why a column of the program does not fit ONNX; `None` if it does."""
    is_hashed = any(step["kind"] == "HashBucket" for step in column["steps"])
    if BETWEEN_TEXTS in column["source"]:
        return f"cross: {_NO_BYTES if is_hashed else 'the graph does not join texts'}"
    if column["slices"]:
        return "list_slice: the graph takes whole lists"
    if column["source"] in outputs:
        return f"the graph has an output {column['source']}"
    used = [step["vocabulary"] for step in column["steps"] if "vocabulary" in step]
    if sum(program.vocabularies[name].values.nbytes for name in used) > _MOST_BYTES:
        return "its values take more than 1 GiB"
    if is_hashed and column["to"] == "text":
        return f"HashBucket: {_NO_BYTES}"
    for step in column["steps"] if column["to"] == "text" else ():
        if "vocabulary" in step and program.vocabularies[step["vocabulary"]].num_oov > 1:
            return f"{step['kind']}: {_NO_BYTES}"
    return None


def write_raw_graph(
    folder: Path,
    model_file: str,
    program: Program,
    inputs: Sequence[RawInput],
    targets: Sequence[Mapping[str, Any]],
) -> None:
    """Write `raw.onnx` into the folder of an exported ONNX model, whose weights it shares.

    Inputs of flat columns are `[rows, 1]`. The input `NAME.missing`, bool, may be omitted if no
    value is missing. The outputs are the columns that `distrain predict` writes, `[rows]` or
    `[rows, classes]`. Rows with a value that `predict` rejects get NaN, and -1 as the class.

    Args:
        model_file: The name of the exported ONNX model in the folder.
        inputs: The first result of `raw_inputs`.
        targets: The entry `targets` of `manifest.json`.
    """
    import onnx

    model = onnx.load(str(folder / model_file), load_external_data=False)
    model = onnx.compose.add_prefix(model, _MODEL)
    nodes = Nodes(program)
    given = _read(nodes, inputs)
    raw = {one.name: _values(nodes, one) for one in inputs}
    _prepare(nodes, raw, taken={one.name for one in model.graph.input})
    before = len(nodes.all)
    outputs = _score(nodes, targets)
    graph = onnx.helper.make_graph(
        [*nodes.all[:before], *model.graph.node, *nodes.all[before:]],
        "raw",
        given,
        outputs,
        [*nodes.constants, *model.graph.initializer],
        value_info=model.graph.value_info,
    )
    opsets = [*model.opset_import, onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    whole = onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=model.ir_version, functions=model.functions
    )
    onnx.save(whole, str(folder / RAW_GRAPH))


def _read(nodes: Nodes, inputs: Sequence[RawInput]) -> list[Any]:
    """Return the ONNX descriptions of the graph's inputs.

    For each optional input `NAME.missing`, also add its default (no value is missing) to
    `nodes.constants`.
    """
    given = []
    for one in inputs:
        size = f"values of {one.name}" if one.lists else "rows"
        shape: list[str | int] = [size] if one.lists else [size, 1]
        if one.lists:
            given.append(_described(f"{one.name}.lengths", np.dtype(np.int64), ["rows"]))
        if one.kind != "presence":
            given.append(_described(one.values, DTYPES[one.kind], shape))
        if one.kind != "number":
            # Named differently from the rows: if the mask is omitted, its default has one row.
            shape[0] = size if one.kind == "presence" else f"{one.missing} or 1"
            given.append(_described(one.missing, np.dtype(bool), shape))
        if one.kind in EMPTY:
            nodes.constants.append(tensor(np.zeros([1] * len(shape), bool), one.missing))
    return given


def _values(nodes: Nodes, one: RawInput) -> Values:
    x = Tensor(nodes, one.values, one.kind, one.lists)
    return Values(x, None if one.kind == "number" else replace(x, name=one.missing, kind="truth"))


def _read_as(kind: str, values: Values) -> Values:
    if kind == "number":
        return as_numbers(values)
    x, missing = values
    if kind == "presence" and missing is None:
        return Values(x, np.isnan(x))
    if kind == "presence" and x.kind != kind:  # an omitted mask has one row
        return Values(x, missing.made("Expand", missing.name, x.graph.add("Shape", x.name)))
    return values


def _prepare(nodes: Nodes, raw: Mapping[str, Values], taken: set[str]) -> None:
    """Add nodes that compute the inputs of the model's graph from raw columns.

    Args:
        raw: The values of the graph's raw columns, by name.
        taken: The names of the inputs of the model's graph. Other model inputs are not made.
    """
    document = nodes.program.document
    columns = {column["name"]: column for column in document["columns"]}
    flat = {
        name: [_column(raw, columns[column]) for column in document[name]]
        for name in ("categorical", "continuous")
    }
    for name, made in flat.items():
        if _MODEL + name in taken:
            made = made or [_no_columns(nodes, [*flat["categorical"], *flat["continuous"]], name)]
            nodes.add("Concat", *made, out=_MODEL + name, axis=1)
    of_event: dict[str, str] = {}
    for name, event in document["lists"]:
        nodes.add("Identity", _column(raw, columns[name]), out=f"{_MODEL}{name}.values")
        lengths = f"{columns[name]['source']}.lengths"
        nodes.add("Identity", lengths, out=f"{_MODEL}{name}.lengths")
        unlike = nodes.add("Not", nodes.add("Equal", lengths, of_event.setdefault(event, lengths)))
        nodes.refuse(unlike, lists=True)


def _no_columns(nodes: Nodes, others: Sequence[str], name: str) -> str:
    """Return the name of a tensor `[rows, 0]`, for a model input without columns.

    `others` names tensors with the same number of rows. `name` is `categorical` or `continuous`.
    """
    zero, one = nodes.constant([0], np.int64), nodes.constant([1], np.int64)
    if not others:
        listed = next(iter(nodes.program.document["lists"]))[0]
        columns = {column["name"]: column["source"] for column in nodes.program.document["columns"]}
        shape = nodes.constant([-1, 1], np.int64)
        others = [nodes.add("Reshape", f"{columns[listed]}.lengths", shape)]
    none = nodes.add("Slice", others[0], zero, zero, one)
    return nodes.cast(none, np.int64 if name == "categorical" else np.float32)


def _column(raw: Mapping[str, Values], column: Mapping[str, Any]) -> str:
    """Return the name of a column's tensor after its steps: int64 ids or float32 numbers.

    Adds the nodes that compute it. The graph refuses rows whose numbers are not integers of
    64 bits, and rows whose numbers are missing or not finite as float32.
    """
    values = _read_as(column["to"], raw[column["source"]])
    if column["is_whole"]:
        x = values.x
        for bad in (np.floor(x) < x, x < -(2.0**63), x >= 2.0**63):
            refuse(bad, "not an integer of 64 bits")
    for step in column["steps"]:
        values = STEPS[step["kind"]](values, step, values.x.graph.program)
    if values.x.kind == "ids":
        return str(values.x.name)
    x = as_numbers(values).x.astype(np.float32)
    for bad in (np.isnan(x), np.isinf(x)):
        refuse(bad, "missing, or not finite as float32")
    return str(x.name)


def _score(nodes: Nodes, targets: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Add nodes that compute the score columns from the model's outputs.

    Returns the descriptions of the graph's outputs. The scores of refused rows are NaN, and their
    class is -1.
    """
    refused = nodes.constant([[False]], bool)
    for other in nodes.refused:
        refused = nodes.add("Or", refused, other)
    of_row = nodes.add("Reshape", refused, nodes.constant([-1], np.int64))
    nan, outputs = nodes.constant(np.nan, np.float32), []
    for target in targets:
        first, *others = target["columns"]
        scores = _MODEL + target["output"]
        if target["kind"] == "multiclass":
            best = nodes.add("ArgMax", scores, axis=1, keepdims=0)
            none = nodes.constant(-1, np.int32)
            nodes.add("Where", of_row, none, nodes.cast(best, np.int32), out=first)
            kept = nodes.add("Where", refused, nan, scores)
            nodes.add("Softmax", kept, out=others[0], axis=1)
            outputs += [_described(first, np.dtype(np.int32), ["rows"])]
            outputs += [_described(others[0], np.dtype(np.float32), ["rows", target["classes"]])]
            continue
        nodes.add("Where", of_row, nan, scores, out=first)
        for probability in others:
            nodes.add("Sigmoid", first, out=probability)
        outputs += [_described(name, np.dtype(np.float32), ["rows"]) for name in target["columns"]]
    return outputs


def _described(name: str, dtype: np.dtype[Any], shape: Sequence[str | int]) -> Any:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, shape)
