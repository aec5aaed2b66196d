"""Loads the newest complete checkpoint with all its state, or only a checkpoint's weights."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from distrain.errors import DataError
from distrain.jobs.events import CheckpointTrouble
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.averaging import GAP, Averaging
from distrain.models.embeddings.canonical_state import CanonicalTensor, canonical_form
from distrain.models.embeddings.collection import values_dtype
from distrain.models.embeddings.peers import Peers, gather_texts
from distrain.models.saved_model import model_tensors
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, CheckpointEntry, entry_of
from distrain.train.checkpoint.manifest import (
    DAMAGED_FILE,
    MANIFEST_FILE,
    Damaged,
    TensorFacts,
    from_document,
)
from distrain.train.checkpoint.rank_store import fail_on_all_ranks, on_one_line
from distrain.train.checkpoint.shard_reading import ShardReading, receivers_of
from distrain.train.checkpoint.training_state import (
    TrainingState,
    differences,
    facts_of,
    table_factor,
)


@dataclass(frozen=True)
class LoadResult:
    """The result of `load_newest`: which checkpoint it loaded, and values other than the state."""

    entry: CheckpointEntry | None  # the checkpoint that was loaded; `None` if none is usable
    # whether `entry` is `None` and parts of a damaged checkpoint were read, so the state is invalid
    touched: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    # tensors of each saving rank, by rank, on the CPU. With the same number of ranks each gets its
    # own; with n ranks, rank `r` gets those of the ranks `r`, `r + n`, and so on
    rank_tensors: Mapping[int, dict[str, Tensor]] = field(default_factory=dict)
    saved_by: int = 0  # the number of ranks that saved the checkpoint


def load_newest(
    directory: CheckpointDir,
    state: TrainingState,
    peers: Peers,
    *,
    belongs: Callable[[CheckpointEntry], bool] = lambda _: True,
    accept: Callable[[CheckpointEntry], None] | None = None,
    report: Callable[[CheckpointTrouble], None] | None = None,
    progress: Callable[[], None] | None = None,
) -> LoadResult:
    """Load the first undamaged entry of `directory.list()` that `belongs` accepts.

    This is a collective operation.

    The number of ranks and the placement of tables may differ from those of the run that saved it:
    every rank reads its own rows and verifies checksums. If any rank detects damage, rank 0 reports
    it and sets the checkpoint aside permanently, and all ranks load the next one.

    Args:
        state: The tensors to load into.
        belongs: Entries for which it returns False are skipped.
        accept: Called on every rank with the entry before anything is changed. It must raise an
            error, the same on all ranks, for a checkpoint that must not be resumed.
        report: Called on rank 0 with each damaged checkpoint.
        progress: Called after each file that was checked, and each slab that was read.

    Raises:
        Unavailable: The directory or a file could not be read, for a possibly temporary reason; on
            every rank.
        DataError: The saved tensors do not fit this model and its optimizers; on every rank.
    """
    after_slab = progress or (lambda: None)
    return _Loading(directory, state, peers, belongs, accept, report, after_slab).run()


@dataclass
class _Loading:
    directory: CheckpointDir
    state: TrainingState
    peers: Peers
    belongs: Callable[[CheckpointEntry], bool]
    accept: Callable[[CheckpointEntry], None] | None
    report: Callable[[CheckpointTrouble], None] | None
    after_slab: Callable[[], None]
    begun: bool = False

    def run(self) -> LoadResult:
        for name in self._names():
            try:
                return self._load(name)
            except Damaged as error:
                self._set_aside(name, error)
        touched = any(gather_texts(self.peers, self.state.device, "begun" if self.begun else ""))
        return LoadResult(None, touched)

    def _names(self) -> list[str]:
        text = ""
        with self._together():
            if self.peers.rank == 0:
                entries = filter(self.belongs, self.directory.list())
                text = json.dumps([entry.name for entry in entries])
        for message in self.directory.damaged if self.peers.rank == 0 else ():
            self._warn(message)
        names: list[str] = json.loads(gather_texts(self.peers, self.state.device, text)[0])
        return names

    def _load(self, name: str) -> LoadResult:
        """Load a checkpoint; raise `Damaged`, on all ranks, if any rank finds damage.

        Also raises `DataError` if the tensors do not fit or the format is not supported,
        `Unavailable`, and the errors of `accept`. Any of these may come after tensors were changed;
        `begun` says whether they were.
        """
        with self._together():
            folder = self.directory.folder(name)
            document = self.directory.read_manifest(name)
            manifest = from_document(document, folder.url)
        entry = entry_of(name, folder.url, document)
        if self.accept is not None:
            self.accept(entry)
        self.state.check_fits(manifest.state, manifest.tensors, folder.url)
        receivers = receivers_of(self.state.tensors())
        rank, num_ranks = self.peers.rank, self.peers.num_ranks
        owned = range(rank, len(manifest.shards), num_ranks)
        reading = ShardReading(folder, manifest, receivers, rank, self.after_slab, owned)
        with self._together():
            manifest.check_whole(folder.url)
            reading.check()
        try:
            with self._together():
                rank_tensors = reading.run()
        finally:
            self.begun |= reading.begun
        self.state.adopt(manifest.state)
        return LoadResult(entry, False, manifest.values, rank_tensors, len(manifest.shards))

    def _together(self) -> contextlib.AbstractContextManager[None]:
        return fail_on_all_ranks(self.peers, self.state.device, self.directory.url)

    def _set_aside(self, name: str, error: Damaged) -> None:
        if self.peers.rank != 0:
            return
        folder = self.directory.folder(name)
        self._warn(f"the checkpoint {folder.url} was left aside: {on_one_line(error)}")
        # If the folder is not writable, the damage is detected again the next time.
        with contextlib.suppress(OSError):
            folder.rename(MANIFEST_FILE, DAMAGED_FILE)

    def _warn(self, message: str) -> None:
        if self.report is not None:
            self.report(CheckpointTrouble(self.peers.rank, message))


class WeightsReading:
    """Reads a checkpoint's weights into a model on one rank; not a collective operation.

    If the training kept an average of its weights, the model gets the average. A rank reads the
    rows that its model holds. First call `check`, then `run`. Creating an instance reads the
    manifest. It raises `Damaged` or `Unavailable` if the manifest cannot be used, and `DataError`
    if the model's tensors have other names, shapes or dtypes than those saved.
    """

    def __init__(
        self,
        directory: CheckpointDir,
        name: str,
        model: ClickModel,
        peers: Peers,
        after_slab: Callable[[], None] = lambda: None,
    ):
        self._folder = directory.folder(name)
        self._manifest = from_document(directory.read_manifest(name), self._folder.url)
        self._tables = model.embeddings
        self._average = _Average(model, self._manifest.state)
        tensors: dict[str, Any] = {**model_tensors(model), **self._average.tensors()}
        _check_fits(self._manifest.tensors, facts_of(tensors), self._folder.url)
        # The saving ranks' own tensors, such as random states, are not read.
        self._reading = ShardReading(
            self._folder, self._manifest, receivers_of(tensors), peers.rank, after_slab, owned=()
        )

    def check(self) -> None:
        """Check the files like `ShardReading.check`.

        Raises `Damaged` also if rows of a tensor are in no file.
        """
        self._manifest.check_whole(self._folder.url)
        self._reading.check()

    def run(self) -> None:
        """Read like `ShardReading.run`; if it raises, some rows may have been overwritten."""
        self._reading.run()
        self._average.apply()
        self._tables.factor = table_factor(self._manifest.state)
        self._tables.apply_factor()


class _Average:
    """Replaces a model's weights by their average, if the training kept one (`train.ema`).

    A checkpoint has the weights and, for each weight, its gap to the average (see `Averaging`).
    """

    def __init__(self, model: ClickModel, state: Mapping[str, Any]):
        decay = state.get("ema")
        self._averaging = None if decay is None else Averaging(decay)
        self._steps = state["sparse_steps"]
        self._tables = model.embeddings
        self._dense = {n: p for n, p in model.dense.named_parameters() if p.requires_grad}
        weights = [*self._dense.values(), *self._tables.weights] if self._averaging else []
        self._gaps = [
            (weight, torch.zeros_like(weight, dtype=values_dtype(weight.data)))
            for weight in weights
        ]

    def tensors(self) -> dict[str, Tensor | CanonicalTensor]:
        """Return the tensors into which the gaps of `Averaging` are read, by name in a checkpoint.

        The result is empty if the training kept no average.
        """
        if self._averaging is None:
            return {}
        gaps = [gap for _, gap in self._gaps]
        dense = zip(self._dense, gaps, strict=False)
        tables = canonical_form(self._tables, gaps[len(self._dense) :])
        return {
            **{f"dense_optimizer.{name}.{GAP}": gap for name, gap in dense},
            **{f"sparse_optimizer.{group}.{GAP}": gap for group, gap in tables.items()},
        }

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the weights, after weights and gaps were read; do nothing without an average."""
        if self._averaging is None:
            return
        for weight, gap in self._gaps:
            weight.copy_(self._averaging.averages(weight.data, gap, self._steps))


def _check_fits(saved: Mapping[str, TensorFacts], own: Mapping[str, TensorFacts], url: str) -> None:
    weights = ("dense.", "embeddings.")
    saved = {name: f for name, f in saved.items() if name.startswith(weights) or name in own}
    problems = differences(saved, own, "the model needs")
    if problems:
        raise DataError(
            "the checkpoint's weights do not fit the model:\n  " + "\n  ".join(problems),
            where={"path": url},
        )
