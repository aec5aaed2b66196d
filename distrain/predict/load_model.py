"""Loads a model from a checkpoint: built from the stored spec and schema, with its weights."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from distrain.errors import DataError
from distrain.jobs.spec.data import READING
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_stored_spec
from distrain.models.build import blueprint_of, build_model
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.peers import Peers
from distrain.models.saved_model import SavedModel, load_model, needed_tensors
from distrain.models.tensor_file import dtype_of
from distrain.schema.schema import Schema
from distrain.storage.urls import is_remote
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir
from distrain.train.checkpoint.loading import WeightsReading
from distrain.train.checkpoint.manifest import MANIFEST_FILE, TensorFacts, from_document
from distrain.train.data.inputs import list_combiners


def open_model(path: str | Path) -> SavedModel:
    """Return the model of a saved model's folder or of one checkpoint, on the CPU.

    A URL is always that of a checkpoint. Raises the errors of `load_checkpoint` or `load_model`.
    """
    if is_remote(path) or (Path(path) / MANIFEST_FILE).is_file():
        return load_checkpoint(str(path))
    return load_model(path)


def load_checkpoint(url: str) -> SavedModel:
    """Return the model of a checkpoint, on the CPU; nothing in it is unpickled.

    Raises `DataError` if the checkpoint is missing, damaged or not of a training job, and
    `Unavailable` if the storage does not answer. Raises `SpecError`, `SchemaError` or `ModelError`
    if this process cannot build the model, for example from a function that it may not import.
    """
    text = url if is_remote(url) else str(Path(url).absolute())
    parent, _, name = text.rstrip("/").rpartition("/")
    directory = CheckpointDir(parent)
    manifest = from_document(directory.read_manifest(name))
    where = {"checkpoint": url}
    if not {"spec", "schema"} <= set(manifest.values):
        raise DataError(
            "not a checkpoint of a training job: it has no spec or no schema", where=where
        )
    spec = parse_stored_spec(dict(manifest.values["spec"]))
    schema = Schema.from_json(manifest.values["schema"])
    combiners = list_combiners(schema, spec.embeddings)
    _check_sizes(schema, spec, combiners, manifest.tensors, url)
    saved_as, _ = manifest.tensors.get("embeddings.weights.0", ("F32", ()))
    make_tables = partial(EmbeddingCollection, dtype=dtype_of(saved_as))
    model = build_model(schema, spec.model, seed=0, make_tables=make_tables, combiners=combiners)
    model.dense.logit_shift = spec.data.logit_shift
    reading = WeightsReading(directory, name, model, Peers())
    try:
        reading.check()
        reading.run()
    except OSError as error:
        raise DataError(f"cannot be read: {error}", where=where) from None
    # Checkpoints of earlier versions have the options of reading only in the spec.
    about = {**manifest.values, READING: spec.data.reading}
    return SavedModel(model, spec.model, schema, about)


def _check_sizes(
    schema: Schema,
    spec: JobSpec,
    combiners: Mapping[str, Any],
    saved: Mapping[str, TensorFacts],
    url: str,
) -> None:
    """Raise `DataError` if the model's tensors have other shapes than those saved.

    Runs before the model is allocated, so that a wrong checkpoint cannot exhaust the memory.
    """
    blueprint = blueprint_of(schema, spec.model, combiners)
    tables, dense = needed_tensors(blueprint)
    needed = tables | {name: tuple(tensor.shape) for name, tensor in dense.items()}
    problems = [
        f"{name} is {saved[name][1] if name in saved else 'missing'}, the model needs {shape}"
        for name, shape in needed.items()
        if name not in saved or tuple(saved[name][1]) != tuple(shape)
    ]
    if problems:
        raise DataError(
            "the checkpoint's weights do not fit its spec and schema:\n  " + "\n  ".join(problems),
            where={"checkpoint": url},
            hint="Is the schema still that of the data that it was trained on?",
        )
