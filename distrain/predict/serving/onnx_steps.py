"""Makes ONNX nodes for the steps of a program's columns, by tracing `distrain.prep.steps`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from distrain.predict.serving.program import Program
from distrain.prep import steps
from distrain.prep.raw_values import END_OF_TIMES, FIRST_TIME, refuse
from distrain.prep.steps import FIRST_OOV_ID, NULL_ID, Step, Values
from distrain.prep.vocabulary import Vocabulary

DTYPES = {
    "text": np.dtype(object),
    "integer": np.dtype(np.int64),
    "time": np.dtype(np.int64),
    "ids": np.dtype(np.int64),
    "number": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "uint64": np.dtype(np.uint64),
    "truth": np.dtype(bool),
}
EMPTY = {"text": "", "integer": 0, "time": 0}
"""The value of a graph's input where it is missing, by the kind of the column's values."""

_KINDS = {DTYPES[kind]: kind for kind in ("integer", "number", "float32", "uint64")}
_where: Callable[..., Tensor] = np.where  # type: ignore[assignment]

_OPERATORS = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "remainder": "Mod",
    "minimum": "Min", "maximum": "Max", "absolute": "Abs", "sign": "Sign", "floor": "Floor",
    "log": "Log", "bitwise_xor": "BitwiseXor", "right_shift": "BitShift",
}  # fmt: skip
_TESTS = {
    "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "equal": "Equal",
    "greater_equal": "GreaterOrEqual", "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
"""ONNX operators with boolean results, by the names of NumPy's functions."""


class Nodes:
    """The nodes and constants of an ONNX graph that is being made.

    Attributes:
        all: The nodes, in order.
        refused: Names of boolean tensors that are True where a value cannot be used. The shape is
            `[rows, 1]`, or `[1, 1]` for a flag that concerns all rows.
    """

    def __init__(self, program: Program):
        self.all: list[Any] = []
        self.constants: list[Any] = []
        self.refused: list[str] = []
        self.program = program
        self._numbers = count()
        self._known: dict[Any, str] = {}

    def add(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        from onnx import helper

        name = out or f"raw/{op}_{next(self._numbers)}"
        domain = "ai.onnx.ml" if op == "LabelEncoder" else ""
        self.all.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def cast(self, name: str, dtype: Any) -> str:
        """Add a conversion of the tensor `name` to a NumPy type; return the result's name."""
        from onnx import helper

        return self.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, value: Any, dtype: Any) -> str:
        """Return the name of a constant; equal constants are stored once."""
        array = np.asarray(value, dtype)
        value = array.tolist() if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, value)
        if key not in self._known:
            self._known[key] = f"raw/constant_{next(self._numbers)}"
            self.constants.append(tensor(array, self._known[key]))
        return self._known[key]

    def refuse(self, bad: str, lists: bool) -> None:
        """Make the graph return NaN, and class -1, for rows where the tensor named `bad` is true.

        With `lists`, `bad` has a flag for each item of a list column. A single true flag then
        affects all rows.
        """
        if lists:
            total = self.add("ReduceSum", self.cast(bad, np.int64), keepdims=0)
            some = self.add("Greater", total, self.constant(0, np.int64))
            bad = self.add("Reshape", some, self.constant([1, 1], np.int64))
        self.refused.append(bad)


@dataclass(frozen=True, eq=False)
class Tensor(NDArrayOperatorsMixin):
    """A tensor of the ONNX graph, of any shape. NumPy functions applied to it add nodes.

    Attributes:
        kind: One of `DTYPES`; times are microseconds since 1970.
        lists: Whether the values are items of lists.
    """

    graph: Nodes
    name: str
    kind: str
    lists: bool = False

    def __array_ufunc__(self, function: Any, _method: str, *inputs: Any) -> Any:
        if function is np.floor_divide:
            whole, by = inputs
            return (whole - whole % by) / by  # ONNX divides towards 0
        if function is np.copysign:
            return inputs[0] * np.sign(inputs[1])
        if function is np.log1p:
            # log1p(x) = x * log(u) / (u - 1) for the rounded u = 1 + x (Goldberg 1991, theorem 4).
            above = self + 1
            rest = above - 1
            return _where(rest == 0, self, self * np.log(above) / rest)
        names = [self._name_of(one) for one in inputs]
        if (test := _TESTS.get(function.__name__)) is not None:
            return self.made(test, *names, kind="truth")
        more = {"direction": "RIGHT"} if function is np.right_shift else {}
        return self.made(_OPERATORS[function.__name__], *names, **more)

    def __array_function__(self, function: Any, _types: Any, args: Any, _kwargs: Any) -> Any:
        if function is np.where:
            chosen, *pair = args
            typed = next(one for one in pair if isinstance(one, Tensor))
            return typed.made("Where", chosen.name, *map(typed._name_of, pair))
        assert function is np.searchsorted  # with side="right"
        last = self.graph.constant([-1], np.int64)
        reached = (self.made("Unsqueeze", self.name, last) >= args[0]).astype(np.int64)
        return reached.made("ReduceSum", reached.name, last, keepdims=0)

    def astype(self, dtype: Any) -> Tensor:
        kind = _KINDS[np.dtype(dtype)]
        return self if kind == self.kind else self.called(self.graph.cast(self.name, dtype), kind)

    def any(self) -> bool:
        """Make the graph return NaN for rows where this tensor is true; always return False.

        Their class is -1. A true item of a list column does this to all rows (`refuse`).

        The traced code raises an error if `any()` is true. While the graph is made, it must
        continue.
        """
        self.graph.refuse(self.name, self.lists)
        return False

    def made(self, op: str, *names: str, kind: str | None = None, **attributes: Any) -> Tensor:
        """Add a node with the inputs `names`; return its output, by default of this kind."""
        return self.called(self.graph.add(op, *names, **attributes), kind)

    def called(self, name: str, kind: str | None = None) -> Tensor:
        """Return a tensor of the graph by its name; `kind` is this tensor's by default."""
        return replace(self, name=name, kind=kind or self.kind)

    def _name_of(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return value.name
        return self.graph.constant(value, DTYPES[self.kind])


def as_numbers(values: Values) -> Values:
    """Return values as float64, with NaN for missing values and without a mask."""
    x = values.x.astype(np.float64)
    return Values(x if values.missing is None else _where(values.missing, np.nan, x))


def _hash_bucket(values: Values, step: Step, _: Any) -> Values:
    return values._replace(x=steps.bucket_of(values.x, step["num_buckets"]))


def _categorify(values: Values, step: Step, program: Program) -> Values:
    x, vocabulary = values.x, program.vocabularies[step["vocabulary"]]
    ids = x.made("LabelEncoder", x.name, kind="ids", **_table(vocabulary, x.kind))
    if vocabulary.num_oov > 1:
        spread = steps.bucket_of(x, vocabulary.num_oov) + FIRST_OOV_ID
        ids = _where(ids == FIRST_OOV_ID, spread.called(spread.name, "ids"), ids)
    return Values(ids if values.missing is None else _where(values.missing, NULL_ID, ids))


def _encode(values: Values, step: Step, program: Program) -> Values:
    ids = _categorify(values, step, program).x
    numbers = ids.graph.constant(program.numbers[step["vocabulary"]], np.float64)
    return Values(ids.made("Gather", numbers, ids.name, kind="number"))


def _calendar(values: Values, step: Step, _: Any) -> Values:
    clock = values.x if values.missing is None else _where(values.missing, 0, values.x)
    for bad in (clock < FIRST_TIME, clock >= END_OF_TIMES):
        refuse(bad, "not a time in the years 1 to 9999")
    part = steps.calendar_part(clock, step["part"])
    found = Values(part if step["part"] == "seconds" else part.astype(np.int64), values.missing)
    return found if step["whole"] else as_numbers(found)


STEPS: dict[str, Callable[[Values, Any, Any], Values]] = {
    **steps.STEPS,
    "Categorify": _categorify,
    "HashBucket": _hash_bucket,
    "CountEncode": _encode,
    "TargetEncode": _encode,
    "calendar": _calendar,
}
"""Functions that add a step's nodes, by kind of step; most are traced functions of `steps`."""


def _table(vocabulary: Vocabulary, kind: str) -> dict[str, Any]:
    """Return the attributes of a LabelEncoder that maps values of a vocabulary to their ids.

    All other values get the first out-of-vocabulary id.
    """
    keys = vocabulary.values.to_pylist()
    ids = [*range(vocabulary.first_value_id, vocabulary.first_value_id + len(keys))]
    if not keys:  # an encoder needs at least one key
        keys, ids = [EMPTY[kind]], [FIRST_OOV_ID]
    return {
        "keys_tensor": tensor(np.array(keys, DTYPES[kind]), "keys"),
        "values_tensor": tensor(np.array(ids, np.int64), "values"),
        "default_tensor": tensor(np.array([FIRST_OOV_ID], np.int64), "default"),
    }


def tensor(array: Any, name: str) -> Any:
    """Return an array as an ONNX `TensorProto`."""
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)
