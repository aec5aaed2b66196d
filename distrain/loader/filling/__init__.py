"""Decides which row goes to which place of which batch, and writes it there."""

from distrain.loader.filling.batch_memory import BatchLayout, BlockPool, OpenBatch, OpenBatches
from distrain.loader.filling.filler import Block, Filler, check_values, unusable
from distrain.loader.filling.kernel import KERNEL
from distrain.loader.filling.list_columns import (
    check_lists,
    cut_lists,
    deal_lists,
    join_lists,
    list_limits,
)
from distrain.loader.filling.narrow import NarrowBatch, NarrowLayout, narrow_layout
from distrain.loader.filling.schedule import (
    ChunkDealer,
    Deal,
    Load,
    epoch_chunks,
    open_groups,
    plan_loads,
)
from distrain.loader.filling.tile_memory import tile_bytes
from distrain.loader.filling.torch_filler import TorchFiller, signed_bits, with_room
from distrain.loader.filling.torch_lists import DeviceLists, TorchListFiller

__all__ = [
    "BatchLayout",
    "Block",
    "BlockPool",
    "ChunkDealer",
    "Deal",
    "DeviceLists",
    "Filler",
    "KERNEL",
    "Load",
    "NarrowBatch",
    "NarrowLayout",
    "OpenBatch",
    "OpenBatches",
    "TorchFiller",
    "TorchListFiller",
    "check_lists",
    "check_values",
    "cut_lists",
    "deal_lists",
    "epoch_chunks",
    "join_lists",
    "list_limits",
    "narrow_layout",
    "open_groups",
    "plan_loads",
    "signed_bits",
    "tile_bytes",
    "unusable",
    "with_room",
]
