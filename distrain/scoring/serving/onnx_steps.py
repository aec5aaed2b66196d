"""Steps that values of a column go through, as nodes of an ONNX graph: `steps` in ONNX.

Values are tensors of any shape. Of texts and whole numbers another tensor says which are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from distrain.etl import Vocabulary
from distrain.scoring.serving.program import Program
from distrain.scoring.serving.raw_values import END_OF_TIMES, FIRST_TIME
from distrain.scoring.serving.steps import CLOCK, FIRST_OOV_ID, NULL_ID

DTYPES = {
    "text": np.dtype(object),
    "integer": np.dtype(np.int64),
    "time": np.dtype(np.int64),
    "number": np.dtype(np.float64),
}
EMPTY = {"text": "", "integer": 0, "time": 0}
"""What stands in the place of a missing value."""

DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Value:
    """A tensor by its name.

    Attributes:
        missing: The tensor that says which values are missing; `None` for none, and of numbers,
            where these are NaN.
        kind: "text", "integer", "time" (microseconds since 1970), "number", "presence" or "ids".
    """

    name: str
    missing: str | None
    kind: str


class Nodes:
    """Nodes of a graph, and the constants that they take.

    Attributes:
        refused: Tensors that say of each row, or of all rows, that a value cannot be used.
    """

    def __init__(self, program: Program):
        self.all: list[Any] = []
        self.constants: list[Any] = []
        self.refused: list[str] = []
        self.program = program
        self._numbers = count()
        self._known: dict[Any, str] = {}

    def add(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Add a node; the name of what it gives."""
        from onnx import helper

        name = out or f"raw/{op}_{next(self._numbers)}"
        domain = "ai.onnx.ml" if op == "LabelEncoder" else ""
        self.all.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def cast(self, name: str, dtype: Any) -> str:
        from onnx import helper

        return self.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        array = np.asarray(value, dtype)
        value = array.tolist() if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, value)
        if key not in self._known:
            self._known[key] = f"raw/constant_{next(self._numbers)}"
            self.constants.append(tensor(array, self._known[key]))
        return self._known[key]

    def read_as(self, x: Value, kind: str) -> Value:
        """A whole number as a number, and of any value whether it is there."""
        if kind == "presence" and x.missing is None:
            return Value(x.name, self.add("IsNaN", x.name), kind)
        if kind == "presence" and x.kind != "presence":  # what is left out is one value for all
            shape = self.add("Shape", x.name)
            return Value(x.name, self.add("Expand", str(x.missing), shape), kind)
        if kind == "number" and x.kind == "integer":
            number = self.cast(x.name, np.float64)
            if x.missing is not None:
                number = self.add("Where", x.missing, self.constant(np.nan), number)
            return Value(number, None, kind)
        return x

    def refuse(self, bad: str, lists: bool) -> None:
        """Give the rows with such values no scores; of values in lists, no row at all."""
        if lists:
            total = self.add("ReduceSum", self.cast(bad, np.int64), keepdims=0)
            some = self.add("Greater", total, self.constant(0, np.int64))
            bad = self.add("Reshape", some, self.constant([1, 1], np.int64))
        self.refused.append(bad)


Step = Mapping[str, Any]


def _fill_missing(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    gap = g.add("IsNaN", x.name) if x.kind == "number" else x.missing
    if gap is None:
        return x
    value = g.constant(step["value"], DTYPES[x.kind])
    return Value(g.add("Where", gap, value, x.name), None, x.kind)


def _clip(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    name = x.name
    for bound, beyond in ((step["min"], "Less"), (step["max"], "Greater")):
        if bound is not None:
            limit = g.constant(bound)
            name = g.add("Where", g.add(beyond, name, limit), limit, name)
    return Value(name, None, x.kind)


def _limits(g: Nodes, x: Value, step: Step, lists: bool) -> Value:
    for bound, beyond in ((step["low"], "Less"), (step["high"], "Greater")):
        if bound is not None:
            g.refuse(g.add(beyond, x.name, g.constant(bound)), lists)
    return x


def _log(g: Nodes, x: Value, _step: Step, lists: bool) -> Value:
    g.refuse(g.add("LessOrEqual", x.name, g.constant(-1)), lists)
    # log(1 + x) is x * log(u) / (u - 1) for the rounded u = 1 + x (Goldberg 1991, theorem 4).
    above = g.add("Add", x.name, g.constant(1))
    rest = g.add("Sub", above, g.constant(1))
    scaled = g.add("Div", g.add("Mul", x.name, g.add("Log", above)), rest)
    is_small = g.add("Equal", rest, g.constant(0))
    return Value(g.add("Where", is_small, x.name, scaled), None, x.kind)


def _normalize(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    centred = g.add("Sub", x.name, g.constant(step["mean"]))
    return Value(g.add("Div", centred, g.constant(step["std"])), None, x.kind)


def _missing_flag(g: Nodes, x: Value, _step: Step, _: bool) -> Value:
    assert x.missing is not None  # as `read_as` gives it
    return Value(g.cast(x.missing, np.float64), None, "number")


def _bucketize(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    missing = g.add("IsNaN", x.name)
    if step["log_square"]:
        found = g.add("Where", missing, g.constant(0), _log_square(g, x.name))
    else:
        last = g.constant([-1], np.int64)
        edges = g.constant(step["edges"])
        reached = g.add("GreaterOrEqual", g.add("Unsqueeze", x.name, last), edges)
        found = g.add("ReduceSum", g.cast(reached, np.int64), last, keepdims=0)
    return Value(g.cast(found, np.int64), missing, "integer")


def _log_square(g: Nodes, x: str) -> str:
    size = g.add("Abs", x)
    log = g.add("Min", g.add("Max", size, g.constant(2)), g.constant(np.finfo(np.float64).max))
    log = g.add("Log", log)
    above = g.add("Add", g.add("Floor", g.add("Mul", log, log)), g.constant(2))
    above = g.add("Mul", above, g.add("Sign", x))
    return g.add("Where", g.add("LessOrEqual", size, g.constant(2)), g.add("Floor", x), above)


def _hash_bucket(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    return Value(_bucket(g, x.name, step["num_buckets"]), x.missing, "integer")


def _categorify(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    return Value(_ids(g, x, step["vocabulary"]), None, "ids")


def _encode(g: Nodes, x: Value, step: Step, _: bool) -> Value:
    numbers = g.constant(g.program.numbers[step["vocabulary"]])
    return Value(g.add("Gather", numbers, _ids(g, x, step["vocabulary"])), None, "number")


def _calendar(g: Nodes, x: Value, step: Step, lists: bool) -> Value:
    for bound, beyond in ((FIRST_TIME, "Less"), (END_OF_TIMES - 1, "Greater")):
        bad = g.add(beyond, x.name, g.constant(bound, np.int64))
        g.refuse(g.add("And", bad, g.add("Not", str(x.missing))), lists)
    part, time = step["part"], _Whole(g, x.name)
    if part == "seconds":
        seconds = g.add("Div", g.cast(x.name, np.float64), g.constant(1e6))
        return Value(g.add("Where", str(x.missing), g.constant(np.nan), seconds), None, "number")
    if part in CLOCK:
        size, many = CLOCK[part]
        found = time // size % many
    elif part == "weekday":
        found = (time // DAY_US + 3) % 7
    else:
        found = _date(time // DAY_US)[part]
    value = Value(found.name, x.missing, "integer")
    return value if step["whole"] else g.read_as(value, "number")


def _date(days: _Whole) -> dict[str, _Whole]:
    """Year, month and day of days since 1970.

    Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
    """
    era, of_era = (days + 719_468) // 146_097, (days + 719_468) % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (year * 365 + year // 4 - year // 100)  # from the first of March
    month = (of_year * 5 + 2) // 153
    day = of_year - (month * 153 + 2) // 5 + 1
    later = month // 10  # of January and February 1
    return {"day": day, "month": month + 3 - later * 12, "year": year + era * 400 + later}


@dataclass(frozen=True)
class _Whole:
    """A tensor of whole numbers, with Python's operators."""

    graph: Nodes
    name: str

    def _with(self, op: str, other: _Whole | int) -> _Whole:
        name = self.graph.constant(other, np.int64) if isinstance(other, int) else other.name
        return _Whole(self.graph, self.graph.add(op, self.name, name))

    def __add__(self, other: _Whole | int) -> _Whole:
        return self._with("Add", other)

    def __sub__(self, other: _Whole | int) -> _Whole:
        return self._with("Sub", other)

    def __mul__(self, other: int) -> _Whole:
        return self._with("Mul", other)

    def __mod__(self, other: int) -> _Whole:
        return self._with("Mod", other)

    def __floordiv__(self, other: int) -> _Whole:
        return (self - self % other)._with("Div", other)  # ONNX divides towards 0


STEPS: dict[str, Callable[[Nodes, Value, Step, bool], Value]] = {
    "FillMissing": _fill_missing,
    "Clip": _clip,
    "LogOp": _log,
    "Normalize": _normalize,
    "Categorify": _categorify,
    "MissingFlag": _missing_flag,
    "Bucketize": _bucketize,
    "QuantileBuckets": _bucketize,
    "HashBucket": _hash_bucket,
    "CountEncode": _encode,
    "TargetEncode": _encode,
    "calendar": _calendar,
    "limits": _limits,
}
"""As `steps.STEPS`; the last argument says whether the values are those of lists."""


def _ids(g: Nodes, x: Value, name: str) -> str:
    vocabulary = g.program.vocabularies[name]
    ids = g.add("LabelEncoder", x.name, **_table(vocabulary, x.kind))
    if vocabulary.num_oov > 1:
        first = g.constant(FIRST_OOV_ID, np.int64)
        spread = g.add("Add", _bucket(g, x.name, vocabulary.num_oov), first)
        ids = g.add("Where", g.add("Equal", ids, first), spread, ids)
    if x.missing is not None:
        ids = g.add("Where", x.missing, g.constant(NULL_ID, np.int64), ids)
    return ids


def _table(vocabulary: Vocabulary, kind: str) -> dict[str, Any]:
    """A vocabulary as the attributes of a LabelEncoder; other values get the first unknown id."""
    keys = vocabulary.values.to_pylist()
    ids = [*range(vocabulary.first_value_id, vocabulary.first_value_id + len(keys))]
    if not keys:  # an encoder needs one
        keys, ids = [EMPTY[kind]], [FIRST_OOV_ID]
    return {
        "keys_tensor": tensor(np.array(keys, DTYPES[kind]), "keys"),
        "values_tensor": tensor(np.array(ids, np.int64), "values"),
        "default_tensor": tensor(np.array([FIRST_OOV_ID], np.int64), "default"),
    }


def _bucket(g: Nodes, whole: str, num_buckets: int) -> str:
    """`steps.bucket_of`."""

    def constant(value: int) -> str:
        return g.constant(value, np.uint64)

    x = g.add("Add", g.cast(whole, np.uint64), constant(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        shifted = g.add("BitShift", x, constant(shift), direction="RIGHT")
        x = g.add("Mul", g.add("BitwiseXor", x, shifted), constant(factor))
    return g.cast(g.add("Mod", x, constant(num_buckets)), np.int64)


def tensor(array: Any, name: str) -> Any:
    """An array as a tensor of a graph."""
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)
