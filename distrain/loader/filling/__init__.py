"""Decides which row goes to which place of which batch, and writes it there."""

from distrain.loader.filling.batch_memory import (
    BatchLayout as BatchLayout,
    BlockPool as BlockPool,
    NarrowBatch as NarrowBatch,
    NarrowLayout as NarrowLayout,
    OpenBatch as OpenBatch,
    OpenBatches as OpenBatches,
    narrow_layout as narrow_layout,
    tile_bytes as tile_bytes,
)
from distrain.loader.filling.filler import (
    Block as Block,
    Filler as Filler,
    check_values as check_values,
    unusable as unusable,
)
from distrain.loader.filling.kernel import KERNEL as KERNEL
from distrain.loader.filling.list_columns import (
    check_lists as check_lists,
    cut_lists as cut_lists,
    deal_lists as deal_lists,
    join_lists as join_lists,
    list_limits as list_limits,
)
from distrain.loader.filling.schedule import (
    ChunkDealer as ChunkDealer,
    Deal as Deal,
    Load as Load,
    LoadSteps as LoadSteps,
    LookAhead as LookAhead,
    epoch_chunks as epoch_chunks,
    open_groups as open_groups,
    plan_loads as plan_loads,
    steps_of as steps_of,
)
from distrain.loader.filling.torch_filler import (
    DeviceLists as DeviceLists,
    TorchFiller as TorchFiller,
    TorchListFiller as TorchListFiller,
    ranges as ranges,
    signed_bits as signed_bits,
    with_room as with_room,
)
