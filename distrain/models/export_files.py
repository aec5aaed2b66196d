"""A folder with a model for torch alone or for ONNX runtimes, whole or not at all.

model.pt2                   torch: an exported program, for `torch.export.load`
model.onnx, model.onnx.data onnx: the graph, and its weights
inputs.json                 both: what the model takes and gives, and the schema's columns in order
"""

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from distrain.errors import InputError, ModelError
from distrain.models.export import ScoringModel, export_program
from distrain.models.saved import SavedModel
from distrain.schema import ColumnSchema
from distrain.storage import whole_dir

Form = Literal["torch", "onnx"]
FORMS: tuple[Form, ...] = get_args(Form)
TORCH_FILE = "model.pt2"
ONNX_FILE = "model.onnx"
INPUTS_FILE = "inputs.json"
# Of the libraries that export, which tell their own developers what they do not know.
_TALKATIVE = ("torch.onnx", "onnxscript", "onnx_ir")


def write_export(path: str | Path, saved: SavedModel, to: Form, *, replace: bool = False) -> None:
    """Write a saved model in a form that needs no distrain.

    Args:
        path: A folder that does not exist yet.
        saved: What `load_model` gave.
        to: "torch" or "onnx".
        replace: Whether an existing folder may be replaced.

    Raises:
        OutputError: The folder exists and `replace` is false, or it could not be written.
        InputError: The libraries that write ONNX are not installed.
        ModelError: torch cannot export the model.
    """
    model = ScoringModel(saved.model)
    if to == "onnx":
        _check_onnx()
    with whole_dir(path, replace=replace) as folder:
        with _quiet(), _in_words(to):
            if to == "torch":
                torch.export.save(export_program(model), folder / TORCH_FILE)
            else:
                _write_onnx(folder / ONNX_FILE, model)
        text = json.dumps(_described(model, saved), indent=2)
        (folder / INPUTS_FILE).write_text(text + "\n")


def _write_onnx(file: Path, model: ScoringModel) -> None:
    with torch.no_grad():
        program = torch.onnx.export(
            model,
            model.example(),
            dynamic_shapes=model.dynamic_shapes(),
            input_names=list(model.input_names),
            output_names=["logits"],
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    # The weights beside it: a file of this format itself ends at 2 GiB.
    program.save(file, external_data=True)


def _described(model: ScoringModel, saved: SavedModel) -> dict[str, Any]:
    inputs, schema = saved.model.inputs, saved.schema
    told: list[dict[str, Any]] = [
        {
            "name": "categorical",
            "dtype": "int64",
            "shape": ["rows", len(inputs.categorical_names)],
            "columns": [_column(schema[name]) for name in inputs.categorical_names],
        },
        {
            "name": "continuous",
            "dtype": "float32",
            "shape": ["rows", len(inputs.continuous_names)],
            "columns": [_column(schema[name]) for name in inputs.continuous_names],
        },
    ]
    for name, part in zip(inputs.list_names, range(2, len(model.input_names), 2), strict=True):
        for number, size in enumerate((f"ids of {name}", "rows")):
            entry = {"name": model.input_names[part + number], "dtype": "int64", "shape": [size]}
            told.append(entry | {"columns": [_column(schema[name])]})
    output = {"name": "logits", "dtype": "float32", "shape": ["rows"]}
    return {"inputs": told, "outputs": [output], "model": saved.spec.model_dump(mode="json")}


def _column(column: ColumnSchema) -> Mapping[str, Any]:
    if column.cardinality is None:
        return {"name": column.name}
    return {"name": column.name, "cardinality": column.cardinality}


def _check_onnx() -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the libraries that write ONNX are missing: {', '.join(missing)}",
            hint="pip install 'distrain[onnx]'",
        )


@contextlib.contextmanager
def _in_words(to: Form) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # torch's exporters raise errors of many kinds for what they cannot follow.
        first = next(iter(str(error).strip().splitlines()), "")
        raise ModelError(
            f"torch could not export the model: {type(error).__name__}: {first}",
            where={"to": to},
            hint="Its blocks may use what torch.export cannot follow, such as data-dependent ifs.",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' words to their own developers."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
