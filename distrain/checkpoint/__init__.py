"""Checkpoints: a training's state in files of every rank, for any placement and number of ranks."""

from distrain.checkpoint.checkpoint_dir import CheckpointDir, CheckpointEntry, numbers_of
from distrain.checkpoint.collectives import fail_together, gather_texts, on_one_line
from distrain.checkpoint.loading import LoadResult, WeightsReading, load_newest
from distrain.checkpoint.local_rows import LocalRows, Rows, local_rows_of
from distrain.checkpoint.manifest import (
    MANIFEST_FILE,
    Damaged,
    Manifest,
    TensorFacts,
    from_document,
)
from distrain.checkpoint.ownership import check_owner, claim_dir, claim_together, release_dir
from distrain.checkpoint.rank_store import LocalRankStore, RankStore, not_posted
from distrain.checkpoint.retention import entry_of_step
from distrain.checkpoint.shard_reading import row_slabs
from distrain.checkpoint.training_state import TrainingState
from distrain.checkpoint.writer import CheckpointWriter, SaveResult
from distrain.errors import Unavailable

__all__ = [
    "CheckpointDir",
    "CheckpointEntry",
    "CheckpointWriter",
    "Damaged",
    "LoadResult",
    "LocalRankStore",
    "LocalRows",
    "MANIFEST_FILE",
    "Manifest",
    "RankStore",
    "Rows",
    "SaveResult",
    "TensorFacts",
    "TrainingState",
    "Unavailable",
    "WeightsReading",
    "check_owner",
    "claim_dir",
    "claim_together",
    "entry_of_step",
    "fail_together",
    "from_document",
    "gather_texts",
    "load_newest",
    "local_rows_of",
    "not_posted",
    "numbers_of",
    "on_one_line",
    "release_dir",
    "row_slabs",
]
