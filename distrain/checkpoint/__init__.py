"""Checkpoints: a training's state in files of every rank, for any placement and number of ranks."""

from distrain.checkpoint.checkpoint_dir import (
    CheckpointDir as CheckpointDir,
    CheckpointEntry as CheckpointEntry,
    entry_of_step as entry_of_step,
    numbers_of as numbers_of,
)
from distrain.checkpoint.loading import (
    LoadResult as LoadResult,
    WeightsReading as WeightsReading,
    load_newest as load_newest,
    own_tensors as own_tensors,
)
from distrain.checkpoint.local_rows import (
    LocalRows as LocalRows,
    Rows as Rows,
    local_rows_of as local_rows_of,
)
from distrain.checkpoint.manifest import (
    MANIFEST_FILE as MANIFEST_FILE,
    Damaged as Damaged,
    Manifest as Manifest,
    TensorFacts as TensorFacts,
    from_document as from_document,
)
from distrain.checkpoint.ownership import (
    check_owner as check_owner,
    claim_dir as claim_dir,
    claim_together as claim_together,
    release_dir as release_dir,
)
from distrain.checkpoint.rank_store import (
    RankStore as RankStore,
    fail_together as fail_together,
    gather_texts as gather_texts,
    on_one_line as on_one_line,
)
from distrain.checkpoint.shard_reading import row_slabs as row_slabs
from distrain.checkpoint.training_state import (
    TrainingState as TrainingState,
    create_state as create_state,
    table_factor as table_factor,
)
from distrain.checkpoint.writer import (
    CheckpointWriter as CheckpointWriter,
)
from distrain.errors import Unavailable as Unavailable
