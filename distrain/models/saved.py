"""A trained model as a folder, which appears whole or not at all.

    weights.safetensors   every parameter
    model.json            format version, distrain's version, the job spec's model section,
                          how lists are combined, schema
    schema.pbtxt          the schema again, for Merlin's tools; not read back

Nothing in it is code and nothing is unpickled.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from distrain.embeddings import EmbeddingCollection
from distrain.embeddings.canonical import canonical_weights
from distrain.errors import DataError
from distrain.models.blueprint import TableFactory
from distrain.models.build import build_model
from distrain.models.click import ClickModel
from distrain.models.one_writer import OneWriter
from distrain.models.saved_files import (
    FORMAT,
    MODEL_FILE,
    SCHEMA_FILE,
    WEIGHTS_FILE,
    check_sizes,
    dtype_of_tables,
    open_weights,
    read_description,
)
from distrain.models.tensor_file import Slabs, write_tensors
from distrain.schema import Schema
from distrain.spec import ModelSpec
from distrain.storage import whole_dir
from distrain.version import __version__


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
    path: str | Path,
    model: ClickModel,
    spec: ModelSpec,
    schema: Schema,
    *,
    about: Mapping[str, Any] | None = None,
    replace: bool = False,
    after_slab: Callable[[], None] = lambda: None,
) -> None:
    """Write a model's folder; where its tables lay, and on how many ranks, does not show in it.

    Every rank calls it, and rank 0 writes. If tables are row-wise this is a collective operation,
    which fails on every rank if rank 0 cannot write. If not, the other ranks return at once.

    Args:
        path: A local folder that does not exist yet.
        model: What `build_model(schema, spec, ...)` returned, trained or not, on any device.
        spec: The model section that it was built from.
        schema: The schema that it was built from.
        about: What else to write down, JSON values: where the weights come from.
        replace: Whether an existing folder may be replaced.
        after_slab: Called after each slab of rows that was gathered and written.

    Raises:
        OutputError: It exists already and `replace` is false, or could not be written.
        torch.distributed.DistError: Rank 0 could not write it; it says why itself.
    """
    document = {
        "format": FORMAT,
        "distrain": __version__,
        "model": spec.model_dump(mode="json"),
        "combiners": model.inputs.combiners,
        "schema": schema.to_json(),
        "about": dict(about or {}),
    }
    tensors = model_tensors(model)
    tables = model.embeddings
    collective = any(not isinstance(t, Tensor) and t.shared for t in tensors.values())
    with OneWriter(tables.peers, tables.weights[0].device, collective=collective) as writer:
        if not writer.writes:
            write_tensors(None, tensors, writer, after_slab)
            return
        with whole_dir(path, replace=replace) as folder:
            write_tensors(folder / WEIGHTS_FILE, tensors, writer, after_slab)
            (folder / MODEL_FILE).write_text(json.dumps(document, indent=2) + "\n")
            schema.save(folder / SCHEMA_FILE)


def model_tensors(model: ClickModel) -> dict[str, Tensor | Slabs]:
    """A model's live parameters by name, the tables in canonical form."""
    dense: dict[str, Tensor] = model.dense.state_dict(prefix="dense.")
    weights = canonical_weights(model.embeddings)
    return dense | {f"embeddings.{name}": slabs for name, slabs in weights.items()}


def load_model(path: str | Path, *, make_tables: TableFactory | None = None) -> SavedModel:
    """Read a model's folder.

    Args:
        path: The folder.
        make_tables: Decides where the tables' rows live. Every rank reads its own rows, without
            communication. `None` for all rows here, in the dtype in which they were saved.

    Raises:
        DataError: The folder or one of its files is missing or damaged, it was written by a newer
            distrain, or its weights do not fit its schema and model section.
        SchemaError: The schema in it is unusable.
        ModelError: Its model section fits no columns like these.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(
            "no such saved model",
            where={"path": str(folder)},
            hint="It is a folder; check its name.",
        )
    described = read_description(folder / MODEL_FILE)
    spec, schema = described.spec, described.schema
    weights = open_weights(folder / WEIGHTS_FILE)
    check_sizes(weights, described)  # before there is memory for what the description says
    if make_tables is None:
        make_tables = partial(EmbeddingCollection, dtype=dtype_of_tables(weights))
    model = build_model(
        schema, spec, seed=0, make_tables=make_tables, combiners=described.combiners
    )
    for name, tensor in model_tensors(model).items():
        weights.read_into(name, tensor)
    return SavedModel(model, spec, schema)
