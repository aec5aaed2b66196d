"""A trained model as a folder, which is written atomically.

    weights.safetensors   every parameter
    model.json            format version, distrain's version, the job spec's model section,
                          combiners of lists, schema, shift of the logits
    schema.pbtxt          the schema again, for Merlin's tools; not read back
    workflow/             how to prepare raw rows; for models trained on output of `distrain prep`

An ensemble's folder has only `model.json` and its members' folders, `0/`, `1/`, ...

The folder contains no code, and nothing is unpickled. A file may be damaged, of another model, or
malicious. So before memory is allocated for the described model, the description is compared with
the shapes in the header of the weights file, which cannot exceed the size of the file.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pydantic import BaseModel
from torch import Tensor

from distrain.errors import DataError, ModelError, SchemaError
from distrain.formatting import limit_lines
from distrain.jobs.spec.explain import explain_all, shown
from distrain.jobs.spec.models.kinds import ModelSpec
from distrain.models.blueprint import Blueprint, TableFactory
from distrain.models.build import blueprint_of, build_model
from distrain.models.click_model import ClickModel, Ensemble
from distrain.models.embeddings.canonical_state import canonical_weights
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.columns import Combiner, table_places
from distrain.models.tensor_file import RankZeroWriter, Slabs, TensorFile, put_rows, write_tensors
from distrain.schema.column import Tags
from distrain.schema.schema import Schema
from distrain.storage.outputs import atomic_dir
from distrain.version import __version__

FORMAT = 1
ENSEMBLE_FORMAT = 2
WEIGHTS_FILE = "weights.safetensors"
MODEL_FILE = "model.json"
SCHEMA_FILE = "schema.pbtxt"

_TABLE_DTYPES = (torch.float32, torch.bfloat16, torch.float64)
_MOST_SHOWN = 5


class EnsembleSpec(BaseModel):
    """The model sections of an ensemble's members."""

    kind: Literal["ensemble"] = "ensemble"
    members: tuple[ModelSpec, ...]


@dataclass(frozen=True)
class SavedModel:
    """A saved model with its description.

    Attributes:
        model: The model on the CPU, with the saved parameters.
        spec: The model section that the model was built from.
        schema: The schema of its training data, with the target.
        about: Further data, such as the step.
        members: The saved models of an ensemble; empty for a single model.
    """

    model: ClickModel
    spec: ModelSpec | EnsembleSpec
    schema: Schema
    about: Mapping[str, Any] = field(default_factory=dict)
    members: tuple["SavedModel", ...] = ()

    @classmethod
    def ensemble(
        cls, members: Sequence["SavedModel"], about: Mapping[str, Any] | None = None
    ) -> "SavedModel":
        """Return the ensemble of models of the same columns and targets."""
        model = Ensemble([one.model for one in members])
        spec = EnsembleSpec(members=tuple(one.spec for one in members))
        return cls(model, spec, members[0].schema, about or {}, tuple(members))

    def save(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the saved model to a folder, which must not exist unless `replace`.

        Raises the errors of `save_model`.
        """
        if not isinstance(self.spec, EnsembleSpec):
            save_model(path, self.model, self.spec, self.schema, about=self.about, replace=replace)
            return
        with atomic_dir(path, replace=replace) as folder:
            for number, member in enumerate(self.members):
                member.save(folder / str(number))
            document = _document(ENSEMBLE_FORMAT, self.spec, self.schema, self.about)
            (folder / MODEL_FILE).write_text(json.dumps(document, indent=2) + "\n")


def save_model(
    path: str | Path,
    model: ClickModel,
    spec: ModelSpec,
    schema: Schema,
    *,
    about: Mapping[str, Any] | None = None,
    replace: bool = False,
    after_slab: Callable[[], None] = lambda: None,
) -> None:
    """Write a model's folder, the same for any placement and number of ranks.

    Every rank calls this function, and rank 0 writes. If tables are sharded over ranks, it is a
    collective operation, which fails on every rank if rank 0 cannot write. Otherwise the other
    ranks return at once.

    Args:
        path: A local folder that does not exist yet, unless `replace` is true.
        model: The model of `build_model(schema, spec, ...)`, trained or not, on any device.
        about: Further data as JSON values, such as the origin of the weights.
        after_slab: Called after each slab, at most about 8 MiB of a tensor's rows, to show
            progress.

    Raises:
        OutputError: The folder exists and `replace` is false, or it could not be written.
        torch.distributed.DistError: On other ranks: rank 0 could not write; it raises the cause.
    """
    document = _document(FORMAT, spec, schema, about or {})
    document["combiners"] = model.inputs.combiners
    if model.dense.logit_shift:
        document["logit_shift"] = model.dense.logit_shift
    tensors = model_tensors(model)
    tables = model.embeddings
    collective = any(not isinstance(t, Tensor) and t.shared for t in tensors.values())
    with RankZeroWriter(tables.peers, tables.peers.device, collective=collective) as writer:
        if not writer.writes:
            write_tensors(None, tensors, writer, after_slab)
            return
        with atomic_dir(path, replace=replace) as folder:
            write_tensors(folder / WEIGHTS_FILE, tensors, writer, after_slab)
            (folder / MODEL_FILE).write_text(json.dumps(document, indent=2) + "\n")
            schema.save(folder / SCHEMA_FILE)


def _document(
    format_: int, spec: ModelSpec | EnsembleSpec, schema: Schema, about: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "format": format_,
        "distrain": __version__,
        "model": spec.model_dump(mode="json"),
        "schema": schema.to_json(),
        "about": dict(about),
    }


def model_tensors(model: ClickModel) -> dict[str, Tensor | Slabs]:
    """Return a model's current parameters by name; the tables of a width are one tensor."""
    dense: dict[str, Tensor] = model.dense.state_dict(prefix="dense.")
    model.embeddings.apply_factor()
    weights = canonical_weights(model.embeddings)
    return dense | {f"embeddings.{name}": slabs for name, slabs in weights.items()}


def load_model(path: str | Path, *, make_tables: TableFactory | None = None) -> SavedModel:
    """Read a model's folder.

    Args:
        make_tables: Decides which ranks hold the tables' rows. Every rank reads its own rows,
            without communication. `None` for all rows on this rank, in their saved dtype.

    Raises:
        DataError: The folder or one of its files is missing or damaged, its format is none of
            `FORMAT` and `ENSEMBLE_FORMAT`, or its weights do not fit its schema and model section.
        SchemaError: Its schema is unusable.
        ModelError: Its model section does not fit its columns.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(
            "no such saved model",
            where={"path": str(folder)},
            hint="It is a folder; check its name.",
        )
    document = _read_document(folder / MODEL_FILE)
    if document["format"] == ENSEMBLE_FORMAT:
        section = document["model"]
        named = section.get("members") if isinstance(section, dict) else None
        if not named or not isinstance(named, list):
            raise DataError("the ensemble has no models", where={"file": str(folder / MODEL_FILE)})
        members = [_load_one(folder / str(number), make_tables) for number in range(len(named))]
        return SavedModel.ensemble(members, document.get("about"))
    return _load_one(folder, make_tables)


def _load_one(folder: Path, make_tables: TableFactory | None) -> SavedModel:
    described = read_description(folder / MODEL_FILE)
    spec, schema = described.spec, described.schema
    weights = open_weights(folder / WEIGHTS_FILE)
    check_sizes(weights, described)  # before memory is allocated by the description
    if make_tables is None:
        make_tables = partial(EmbeddingCollection, dtype=dtype_of_tables(weights))
    model = build_model(
        schema, spec, seed=0, make_tables=make_tables, combiners=described.combiners
    )
    model.dense.logit_shift = described.logit_shift
    for name, tensor in model_tensors(model).items():
        weights.read(name, partial(put_rows, tensor))
    return SavedModel(model, spec, schema, described.about)


@dataclass(frozen=True)
class Description:
    """The checked content of the file `model.json`; `logit_shift` is that of `Network`."""

    file: Path
    spec: ModelSpec
    schema: Schema
    combiners: Mapping[str, Combiner]
    about: Mapping[str, Any]
    logit_shift: float = 0.0


def read_description(file: Path) -> Description:
    """Read `model.json`.

    Raises:
        DataError: The file is missing, damaged, of an ensemble, or its format is unknown.
        SchemaError: Its schema is unusable.
    """
    document = _read_document(file)
    if document["format"] == ENSEMBLE_FORMAT:
        raise DataError(
            "this is an ensemble, but a single model is needed",
            where={"file": str(file)},
            hint=f"Name one of its members, such as {file.parent / '0'}.",
        )
    spec = _read_spec(document["model"], file)
    with _file_named(file):
        schema = Schema.from_json(document["schema"])
    combiners = _read_combiners(document.get("combiners", {}), schema, file)
    about = document.get("about", {})
    about = about if isinstance(about, dict) else {}
    shift = document.get("logit_shift", 0.0)
    if not isinstance(shift, int | float) or not math.isfinite(shift):
        raise DataError("logit_shift is not a finite number", where={"file": str(file)})
    return Description(file, spec, schema, combiners, about, float(shift))


def check_sizes(weights: TensorFile, described: Description) -> None:
    """Check that weights fit the described model, without building it.

    Raises:
        DataError: Names or shapes differ, or the type of a tensor is unsuitable.
        SchemaError, ModelError: The model cannot be built from the columns.
    """
    with _file_named(described.file):
        blueprint = blueprint_of(described.schema, described.spec, described.combiners)
        tables, dense = needed_tensors(blueprint)
    needed = tables | {name: tuple(values.shape) for name, values in dense.items()}
    saved = weights.shapes
    problems = [
        f"{_name(name)} is {saved.get(name, 'missing')}, the schema and model section need "
        f"{needed.get(name, 'no such tensor')}"
        for name in sorted(set(saved) | set(needed), key=lambda n: (n.startswith("dense."), n))
        if saved.get(name) != needed.get(name)
    ]
    problems += [
        f"{_name(name)} has type {dtype}"
        for name, dtype in weights.dtypes.items()
        if (name in tables and dtype not in _TABLE_DTYPES)
        or (name in dense and dtype.is_floating_point != dense[name].dtype.is_floating_point)
    ]
    if problems:
        raise DataError(
            "the weights do not fit the model:\n  "
            + "\n  ".join(limit_lines(problems, _MOST_SHOWN)),
            where={"file": str(weights.path)},
            hint=f"{MODEL_FILE} and {WEIGHTS_FILE} come from different models.",
        )


def dtype_of_tables(weights: TensorFile) -> torch.dtype:
    name = next((n for n in weights.dtypes if n.startswith("embeddings.weights.")), None)
    return weights.dtypes[name] if name else torch.float32


def needed_tensors(
    blueprint: Blueprint,
) -> tuple[dict[str, tuple[int, ...]], dict[str, Tensor]]:
    """Return the tensors of a weights file by name: the shapes of the tables, and dense tensors.

    The tables of one width are one tensor (`CanonicalTensor`). The dense tensors are on torch's
    device `meta`, without memory. The blueprint cannot be used again.
    """
    places = table_places(blueprint.inputs.columns)
    tables: dict[str, tuple[int, ...]] = {
        place.tensor: (place.first + place.cardinality, place.dim) for place in places
    }
    return tables, blueprint.outline().state_dict(prefix="dense.")


@contextmanager
def _file_named(file: Path) -> Iterator[None]:
    try:
        yield
    except (SchemaError, ModelError) as error:
        where = {"file": str(file), **error.where}
        raise type(error)(error.message, where=where, hint=error.hint) from None


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
    if document["format"] not in (FORMAT, ENSEMBLE_FORMAT):
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
    """Return the combiners of list columns; `DataError` if they do not fit the schema.

    Files of early versions, which did not support lists, have no combiners.
    """
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
    """Open the file of the weights; `DataError` if it is missing or damaged."""
    if not file.is_file():
        raise _missing(file)
    return TensorFile(file)


def _missing(file: Path) -> DataError:
    return DataError(
        f"the saved model lacks {file.name}",
        where={"file": str(file)},
        hint="Copy the whole folder, or save the model again.",
    )
