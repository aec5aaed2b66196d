"""Weights on disk: a saved model, a run's model, or a checkpoint."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from distrain.errors import SpecError, Unavailable
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.load import parse_stored_spec
from distrain.jobs.spec.models.kinds import CustomSpec
from distrain.models.build import blueprint_of
from distrain.models.embeddings.columns import TableColumn
from distrain.models.embeddings.peers import Peers, gather_texts
from distrain.models.heads.tasks import Task
from distrain.models.saved_model import (
    MODEL_FILE,
    WEIGHTS_FILE,
    check_sizes,
    open_weights,
    read_description,
)
from distrain.models.tensor_file import TensorFile
from distrain.schema.schema import Schema
from distrain.storage.folder import Folder, open_folder
from distrain.storage.urls import is_remote
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, numbers_of
from distrain.train.checkpoint.local_rows import Rows
from distrain.train.checkpoint.manifest import MANIFEST_FILE, Damaged, Manifest, from_document
from distrain.train.checkpoint.rank_store import fail_on_all_ranks
from distrain.train.checkpoint.shard_reading import RowReceiver, RowReceivers, ShardReading
from distrain.train.data.vocabularies import WORKFLOW, Vocabularies
from distrain.train.warm_start.matching import Side


class Weights(Protocol):
    """Reads the values of saved weights."""

    def read(
        self, receivers: RowReceivers, rank: int, after_slab: Callable[[], None], own: bool = False
    ) -> Mapping[str, Tensor]:
        """Read the tensors that `receivers` names, and pass each to its receivers.

        A tensor is passed a block of rows at a time; a scalar is one row. `after_slab` is called
        after each block.

        Returns:
            If `own` is true and this is a checkpoint: the tensors that belong to rank `rank` alone,
            by name. Otherwise an empty mapping.
        """


@dataclass(frozen=True)
class WeightsSource:
    """The weights of a saved model or checkpoint, and their number of steps, if known."""

    path: str
    step: int | None
    side: Side
    weights: Weights
    manifest: Manifest | None = None  # the manifest of a checkpoint, which also has optimizer state
    # `data.negatives` of the training that made the weights: the share of negatives that it used
    negatives: float = 1.0


def open_source(path: str, *, with_state: bool = False) -> WeightsSource:
    """Open the weights at a path; only headers are read. Raises `SpecError` if there are none.

    Args:
        path: A run folder with a model, a saved model's folder, a checkpoint's folder, or a
            directory of checkpoints, whose newest checkpoint is used; the latter two may be URLs.
        with_state: Whether optimizer state is needed, which only checkpoints have; of a run folder
            its newest checkpoint is used.
    """
    if is_remote(path):
        return _checkpoint_at(path, with_state)
    folder = Path(path).expanduser()
    paths = RunPaths(folder)
    if with_state and ((folder / MODEL_FILE).is_file() or paths.spec.is_file()):
        if paths.checkpoints.is_dir():
            return _checkpoint_at(str(paths.checkpoints.absolute()), with_state)
        raise SpecError(
            "train.init_from: there is no checkpoint, and a saved model has no optimizer state",
            where={"path": path, "train.init_state": "all"},
            hint="Name the run's checkpoint.dir, or one of the checkpoints in it.",
        )
    if (folder / MODEL_FILE).is_file():
        return _saved_model(folder)
    if (paths.model / MODEL_FILE).is_file():
        return _saved_model(paths.model)
    if paths.spec.is_file():
        raise SpecError(
            "train.init_from: the run has no model yet",
            where={"path": path},
            hint="Wait until it has succeeded. A failed run has no model: name its checkpoints, "
            f"such as {paths.checkpoints}.",
        )
    if not folder.is_dir():
        raise SpecError(
            "train.init_from: no such folder",
            where={"path": path},
            hint="Name a run folder, a saved model's folder or a checkpoint that workers see.",
        )
    return _checkpoint_at(str(folder.absolute()), with_state)


def open_on_all_ranks(
    path: str, peers: Peers, device: torch.device, *, with_state: bool = False
) -> WeightsSource:
    """Open the weights at a path, the same on every rank; a collective operation.

    If every rank listed a directory of checkpoints, a newer checkpoint could appear in between. So
    all ranks use rank 0's choice. Raises the errors of `open_source`, on all ranks.
    """
    found = None
    with fail_on_all_ranks(peers, device, path):
        if peers.rank == 0:
            found = open_source(path, with_state=with_state)
    agreed = gather_texts(peers, device, "" if found is None else found.path)[0]
    return open_source(agreed, with_state=with_state) if found is None else found


def _saved_model(folder: Path) -> WeightsSource:
    described = read_description(folder / MODEL_FILE)
    file = open_weights(folder / WEIGHTS_FILE)
    check_sizes(file, described)
    blueprint = blueprint_of(described.schema, described.spec, described.combiners)
    about = described.about
    vocabularies = Vocabularies.from_json(about)
    if (folder / WORKFLOW).is_dir():
        vocabularies = vocabularies.kept_in(str(folder / WORKFLOW))
    shapes = _dense(file.shapes)
    side = Side(blueprint.inputs.columns, shapes, vocabularies, task=blueprint.task)
    weights, negatives = _ModelWeights(file), math.exp(described.logit_shift)
    return WeightsSource(str(folder), about.get("step"), side, weights, negatives=negatives)


def _checkpoint_at(path: str, with_state: bool) -> WeightsSource:
    parent, _, name = path.rstrip("/").rpartition("/")
    if numbers_of(name) is None:
        entries = CheckpointDir(path).list()
        if not entries:
            raise SpecError(
                f"train.init_from: found neither {MODEL_FILE} nor a complete checkpoint",
                where={"path": path},
                hint="Name a run folder, a saved model's folder or a checkpoint.",
            )
        parent, name = path, entries[0].name
    directory = CheckpointDir(parent)
    manifest = from_document(directory.read_manifest(name))
    columns = [TableColumn(*saved) for saved in manifest.state["columns"]]
    shapes = {name: shape for name, (_, shape) in manifest.tensors.items()}
    vocabularies = Vocabularies.from_json(manifest.values)
    dense = _dense(shapes, with_state)
    side = Side(columns, dense, vocabularies, task=_task_of(manifest))
    folder = open_folder(parent).sub(name)
    weights = _CheckpointWeights(folder, manifest)
    negatives = manifest.values.get("spec", {}).get("data", {}).get("negatives", 1.0)
    return WeightsSource(folder.url, manifest.step, side, weights, manifest, negatives)


def _task_of(manifest: Manifest) -> Task | None:
    """Return the task of a checkpoint's model.

    `None` if the checkpoint lacks spec or schema, or if the model is `custom`.
    """
    values = manifest.values
    if not {"spec", "schema"} <= set(values):
        return None
    model = parse_stored_spec(dict(values["spec"])).model
    if isinstance(model, CustomSpec):  # the function's package may be missing here
        return None
    return blueprint_of(Schema.from_json(values["schema"]), model).task


def _dense(
    shapes: Mapping[str, tuple[int, ...]], with_state: bool = False
) -> dict[str, tuple[int, ...]]:
    prefixes = ("dense.", "dense_optimizer.") if with_state else ("dense.",)
    return {name: tuple(shape) for name, shape in shapes.items() if name.startswith(prefixes)}


@dataclass(frozen=True)
class _ModelWeights:
    file: TensorFile

    def read(
        self, receivers: RowReceivers, rank: int, after_slab: Callable[[], None], own: bool = False
    ) -> Mapping[str, Tensor]:
        for name, of_name in receivers.items():

            def take(
                rows: slice, values: Tensor, of_tensor: Sequence[RowReceiver] = of_name
            ) -> None:
                values = values if values.dim() else values.unsqueeze(0)
                for receiver in of_tensor:
                    receiver.take(Rows(rows.start, 1, len(values)), values)
                after_slab()

            self.file.read(name, take)
        return {}


@dataclass(frozen=True)
class _CheckpointWeights:
    folder: Folder
    manifest: Manifest

    def read(
        self, receivers: RowReceivers, rank: int, after_slab: Callable[[], None], own: bool = False
    ) -> Mapping[str, Tensor]:
        owned = (rank,) if own else ()
        reading = ShardReading(self.folder, self.manifest, receivers, rank, after_slab, owned)
        try:
            reading.check()
            return reading.run().get(rank, {})
        except Damaged:
            try:
                self.folder.size(MANIFEST_FILE)
            except FileNotFoundError:
                raise Unavailable(
                    "the checkpoint was removed while its weights were read",
                    where={"path": self.folder.url},
                    hint="Its run keeps only the newest checkpoints: raise its checkpoint.keep, "
                    "or start from its model when it has ended.",
                ) from None
            raise
