"""The files of a saved model, read and compared before anything is built of them.

A file may be damaged, of another model, or made to do harm. So what the description asks for is
compared with the shapes in the header of the weights, which cannot be larger than their file. Only
then is memory taken for it: no more than a small multiple of the bytes of the files.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from distrain.embeddings.columns import Combiner, TableColumn, first_of_tables
from distrain.errors import DataError, ModelError, SchemaError
from distrain.models.build import blueprint_of
from distrain.models.tensor_file import TensorFile
from distrain.schema import Schema, Tags
from distrain.spec import ModelSpec
from distrain.spec.explain import explain_all, shown

FORMAT = 1
WEIGHTS_FILE = "weights.safetensors"
MODEL_FILE = "model.json"
SCHEMA_FILE = "schema.pbtxt"

_TABLE_DTYPES = (torch.float32, torch.bfloat16, torch.float64)
_MOST_TOLD = 5


@dataclass(frozen=True)
class Description:
    """What `model.json` says.

    Attributes:
        file: It.
        spec: The model section that the model was built from.
        schema: The schema that it was built from.
        combiners: How lists become one embedding, by column.
        about: What else was written down when it was saved.
    """

    file: Path
    spec: ModelSpec
    schema: Schema
    combiners: Mapping[str, Combiner]
    about: Mapping[str, Any]


def read_description(file: Path) -> Description:
    """Read `model.json`.

    Raises:
        DataError: It is missing, damaged, or was written by a newer distrain.
        SchemaError: The schema in it is unusable.
    """
    document = _read_document(file)
    spec = _read_spec(document["model"], file)
    with _file_named(file):
        schema = Schema.from_json(document["schema"])
    combiners = _read_combiners(document.get("combiners", {}), schema, file)
    about = document.get("about", {})
    return Description(file, spec, schema, combiners, about if isinstance(about, dict) else {})


def check_sizes(weights: TensorFile, described: Description) -> None:
    """Refuse weights that are not those of the model that is described; builds nothing.

    Raises:
        DataError: Names, shapes or types differ.
        SchemaError, ModelError: The model cannot be built of the columns.
    """
    with _file_named(described.file):
        blueprint = blueprint_of(described.schema, described.spec, described.combiners)
        tables = _table_shapes(blueprint.inputs.columns)
        dense = blueprint.outline().state_dict(prefix="dense.")
    needed = tables | {name: tuple(values.shape) for name, values in dense.items()}
    saved = weights.shapes
    problems = [
        f"{_name(name)} is {saved.get(name, 'missing')}, the schema and model section need "
        f"{needed.get(name, 'no such tensor')}"
        for name in sorted(set(saved) | set(needed), key=_tables_first)
        if saved.get(name) != needed.get(name)
    ]
    problems += [
        f"{_name(name)} holds {dtype}"
        for name, dtype in weights.dtypes.items()
        if (name in tables and dtype not in _TABLE_DTYPES)
        or (name in dense and dtype.is_floating_point != dense[name].dtype.is_floating_point)
    ]
    if problems:
        more = len(problems) - _MOST_TOLD
        told = [*problems[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
        raise DataError(
            "the weights do not fit the model:\n  " + "\n  ".join(told),
            where={"file": str(weights.path)},
            hint=f"{MODEL_FILE} and {WEIGHTS_FILE} come from different models.",
        )


def dtype_of_tables(weights: TensorFile) -> torch.dtype:
    """In what form the tables were saved."""
    name = next((n for n in weights.dtypes if n.startswith("embeddings.weights.")), None)
    return weights.dtypes[name] if name else torch.float32


def _table_shapes(columns: tuple[TableColumn, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of the groups' canonical weights (`embeddings.canonical`), by name."""
    tables = first_of_tables(columns)
    dims = sorted({column.dim for column in columns})
    rows = [sum(table.cardinality for table in tables if table.dim == dim) for dim in dims]
    return {
        f"embeddings.weights.{group}": (number, dim)
        for group, (number, dim) in enumerate(zip(rows, dims, strict=True))
    }


@contextmanager
def _file_named(file: Path) -> Iterator[None]:
    """Let errors of schema and model name the file that asks for them."""
    try:
        yield
    except (SchemaError, ModelError) as error:
        where = {"file": str(file), **error.where}
        raise type(error)(error.message, where=where, hint=error.hint) from None


def _tables_first(name: str) -> tuple[bool, str]:
    return name.startswith("dense."), name


def _name(text: str) -> str:
    return text if text.isprintable() else ascii(text)


def _read_document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        raise _missing(file) from None
    except RecursionError:
        raise DataError(
            "cannot be read: it is nested too deeply", where={"file": str(file)}
        ) from None
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
            f"saved in format {shown(document['format'])}; this version of distrain reads {FORMAT}",
            where={"file": str(file), "written by distrain": shown(document.get("distrain"))},
            hint="Use the version of distrain that wrote it.",
        )
    return document


def _read_spec(section: object, file: Path) -> ModelSpec:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[ModelSpec] = TypeAdapter(ModelSpec)
    try:
        return adapter.validate_python(section)
    except ValidationError as error:
        problems = "; ".join(
            explain_all([{**item, "loc": ("model", *item["loc"])} for item in error.errors()])
        )
        raise DataError(
            f"its model section is unusable: {problems}", where={"file": str(file)}
        ) from None


def _read_combiners(section: object, schema: Schema, file: Path) -> Mapping[str, Combiner]:
    """How lists become one embedding; a file of a version that knew no lists does not say it."""
    features = schema.remove_by_tag(Tags.TARGET)
    lists = {column.name for column in features.categorical if column.holds_lists}
    words = get_args(Combiner)
    if (
        isinstance(section, dict)
        and section.keys() == lists
        and all(word in words for word in section.values())
    ):
        return section
    raise DataError(
        f"its combiners are unusable: {shown(section)}",
        where={"file": str(file)},
        hint=f"Each categorical column of lists needs one of {', '.join(words)}: "
        f"{', '.join(sorted(lists)) or 'there are none'}.",
    )


def open_weights(file: Path) -> TensorFile:
    """The weights' file.

    Raises:
        DataError: It is missing or damaged.
    """
    if not file.is_file():
        raise _missing(file)
    return TensorFile(file)


def _missing(file: Path) -> DataError:
    return DataError(
        f"the saved model lacks {file.name}",
        where={"file": str(file)},
        hint="Copy the whole folder, or save the model again.",
    )
