"""A trained model as a folder, which appears whole or not at all.

    weights.safetensors   every parameter
    model.json            format version, distrain's version, the job spec's model section, schema
    schema.pbtxt          the schema again, for Merlin's tools; not read back

Nothing in it is code and nothing is unpickled.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import distrain
from distrain.errors import DataError
from distrain.models.build import build_model
from distrain.models.click import ClickModel
from distrain.schema import Schema
from distrain.spec import ModelSpec
from distrain.storage import whole_dir

FORMAT = 1
WEIGHTS_FILE = "weights.safetensors"
MODEL_FILE = "model.json"
SCHEMA_FILE = "schema.pbtxt"


@dataclass(frozen=True)
class SavedModel:
    """What a saved model's folder holds.

    Attributes:
        model: On the CPU, with the saved parameters.
        spec: The model section that it was built from.
        schema: Of the data that it was trained on, target included.
    """

    model: ClickModel
    spec: ModelSpec
    schema: Schema


def save_model(
    path: str | Path, model: ClickModel, spec: ModelSpec, schema: Schema, *, replace: bool = False
) -> None:
    """Write a model's folder.

    Args:
        path: A local folder that does not exist yet.
        model: What `build_model(schema, spec, ...)` returned, trained or not, on any device.
        spec: The model section that it was built from.
        schema: The schema that it was built from.
        replace: Whether an existing folder may be replaced.

    Raises:
        OutputError: It exists already and `replace` is false, or could not be written.
    """
    from safetensors.torch import save_file

    document = {
        "format": FORMAT,
        "distrain": distrain.__version__,
        "model": spec.model_dump(mode="json"),
        "schema": schema.to_json(),
    }
    weights = {name: values.cpu().contiguous() for name, values in model.state_dict().items()}
    with whole_dir(path, replace=replace) as folder:
        with _system_errors():
            save_file(weights, folder / WEIGHTS_FILE)
        (folder / MODEL_FILE).write_text(json.dumps(document, indent=2) + "\n")
        schema.save(folder / SCHEMA_FILE)


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """Turn safetensors' account of a failed write into the `OSError` that it was."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        raise OSError(*([int(code[1])] if code else []), str(error)) from error


def load_model(path: str | Path) -> SavedModel:
    """Read a model's folder.

    Raises:
        DataError: The folder or one of its files is missing or damaged, it was written by a newer
            distrain, or its weights do not fit its schema and model section.
        SchemaError: The schema in it is unusable.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(
            "no such saved model",
            where={"path": str(folder)},
            hint="It is a folder; check its name.",
        )
    file = folder / MODEL_FILE
    document = _read_document(file)
    spec = _read_spec(document["model"], file)
    schema = Schema.from_json(document["schema"])
    model = build_model(schema, spec, seed=0)
    _read_weights(folder / WEIGHTS_FILE, model)
    return SavedModel(model, spec, schema)


def _read_document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        raise _missing(file) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", where={"file": str(file)}) from None
    if not isinstance(document, dict) or not {"format", "model", "schema"} <= set(document):
        raise DataError(
            "not the description of a saved model",
            where={"file": str(file)},
            hint="It needs the keys format, model and schema.",
        )
    if document["format"] != FORMAT:
        raise DataError(
            f"saved in format {document['format']!r}; this version of distrain reads {FORMAT}",
            where={"file": str(file), "written by distrain": document.get("distrain")},
            hint="Use the version of distrain that wrote it.",
        )
    return document


def _read_spec(section: object, file: Path) -> ModelSpec:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[ModelSpec] = TypeAdapter(ModelSpec)
    try:
        return adapter.validate_python(section)
    except ValidationError as error:
        problems = "; ".join(str(item["msg"]) for item in error.errors())
        raise DataError(
            f"its model section is unusable: {problems}", where={"file": str(file)}
        ) from None


@torch.no_grad()
def _read_weights(file: Path, model: ClickModel) -> None:
    """Copy the file's tensors into the model one by one, so that both are never held whole."""
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        raise _missing(file)
    own = model.state_dict()
    try:
        with safe_open(file, framework="pt") as saved:
            names = saved.keys()  # a handle, not a dict: it cannot be iterated
            shapes = {name: tuple(saved.get_slice(name).get_shape()) for name in names}
            _check_shapes(shapes, own, file)
            for name, values in own.items():
                values.copy_(saved.get_tensor(name))
    except (SafetensorError, OSError) as error:
        raise DataError(f"damaged: {error}", where={"file": str(file)}) from None


def _check_shapes(saved: dict[str, tuple[int, ...]], own: dict[str, Tensor], file: Path) -> None:
    needed = {name: tuple(values.shape) for name, values in own.items()}
    problems = [
        f"{name} is {saved.get(name, 'missing')}, the schema and model section need "
        f"{needed.get(name, 'no such tensor')}"
        for name in sorted(set(saved) | set(needed))
        if saved.get(name) != needed.get(name)
    ]
    if problems:
        raise DataError(
            "the weights do not fit the model:\n  " + "\n  ".join(problems),
            where={"file": str(file)},
            hint=f"{MODEL_FILE} and {WEIGHTS_FILE} come from different models.",
        )


def _missing(file: Path) -> DataError:
    return DataError(
        f"the saved model lacks {file.name}",
        where={"file": str(file)},
        hint="Copy the whole folder, or save the model again.",
    )
