"""The operators on a GPU, by cuDF: a column goes there, through its group, and back.

Rows are read and written with Arrow, and what operators learn is learnt with Arrow. This has run on
no GPU yet.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from distrain.errors import ClusterError, InputError
from distrain.prep.column_group import run_operators
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.device import Device
from distrain.prep.operators.list_slice import ListSlice
from distrain.prep.operators.numbers import Clip, FillMissing
from distrain.prep.operators.operator import DeviceOperator, Operator
from distrain.prep.vocabulary import is_text
from distrain.prep.workflow import Workflow
from distrain.storage.retrying import first_line
from distrain.version import how_to_install

if TYPE_CHECKING:
    from distributed import Client

_NUMBERS = frozenset(
    (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
        *(pa.float32(), pa.float64()),
    )
)
_KEEP_INTEGERS = {FillMissing.kind, Clip.kind, ListSlice.kind, Categorify.kind}
_ONE_AT_A_TIME = threading.Lock()


class RunOnCudf:
    """Runs operators as `run_operators` does, on the worker's first GPU.

    One column of a process is there at a time, so that memory does not grow with its threads, which
    read and write meanwhile. Columns of types that cuDF has otherwise than Arrow stay on the host.
    """

    def __init__(self, plc: Any = None):
        self._device = Device(plc or importlib.import_module("pylibcudf"))

    def __call__(self, operators: Sequence[Operator], column: str, values: pa.Array) -> pa.Array:
        if not len(values) or not goes_to_device(operators, values.type):
            return run_operators(operators, column, values)
        with _ONE_AT_A_TIME:
            there = self._device.upload(values)
            for operator in operators:
                there = cast(DeviceOperator, operator).on_device(self._device, column, there)
            return self._device.download(there)


def goes_to_device(operators: Sequence[Operator], kind: pa.DataType) -> bool:
    """Whether values of this type go through these operators on a GPU, for they fare alike there.

    >>> goes_to_device((Categorify(),), pa.string()), goes_to_device((Categorify(),), pa.float32())
    (True, False)
    """
    kinds = {operator.kind for operator in operators}
    if is_text(kind):
        return kinds <= {FillMissing.kind, Categorify.kind} and Categorify.kind in kinds
    if kind not in _NUMBERS or not kinds:
        return False
    # The name of a category is the text that Arrow makes of it, to the last digit of a float.
    makes_floats = bool(kinds - _KEEP_INTEGERS) or pa.types.is_floating(kind)
    return not (Categorify.kind in kinds and makes_floats)


def check_operators(workflow: Workflow) -> None:
    for group in workflow.groups:
        for operator in group.operators:
            if not isinstance(operator, DeviceOperator):
                raise InputError(
                    f"{operator.kind} cannot be run on a GPU",
                    where={"columns": ", ".join(group.columns)},
                    hint="Leave --device cuda out.",
                )


def check_workers(client: Client) -> None:
    """Raise a `ClusterError` unless cuDF and a GPU are at hand in every worker process."""
    problems: dict[str, str | None] = client.run(gpu_problem)
    for worker, problem in problems.items():
        if problem is not None:
            raise ClusterError(
                f"a worker cannot transform on a GPU: {problem}",
                where={"worker": worker},
                hint=f"Install pylibcudf on all workers ({how_to_install('gpu')}) and give "
                "each a GPU, or leave --device cuda out.",
            )


def gpu_problem(load: Callable[[str], Any] = importlib.import_module) -> str | None:
    try:
        device = Device(load("pylibcudf"))
    except ImportError as error:
        return f"the package pylibcudf cannot be imported ({first_line(error)})"
    try:
        device.download(device.upload(pa.array([1])))
    except Exception as error:  # of CUDA, RMM or cuDF, whose classes are theirs
        return f"cuDF finds no GPU that it can use ({first_line(error)})"
    return None
