"""Sizes and repetitions of a bench."""

from dataclasses import dataclass

KIB, MIB = 2**10, 2**20

MOST_PAIRED_NODES = 8
"""Up to this number of nodes, the links of all pairs are measured.

With more nodes, each node sends only to the next node.
"""


@dataclass(frozen=True)
class Sizes:
    memory_bytes: int  # size of each array that hosts copy
    gpu_bytes: int  # size of each array that GPUs copy
    product_rows: int  # rows of the square matrices that GPUs multiply
    product_s: float  # duration of the products on each GPU
    file_bytes: int  # size of the file that hosts write and read
    message_bytes: tuple[int, ...]  # message sizes of collectives, ascending
    # larger messages are skipped if their repetitions would take longer
    message_budget_s: float
    link_bytes: int  # size of a message between two nodes
    repeats: int  # repetitions of each measurement
    data_rows: int  # generated rows for loaders and steps
    data_scale: float  # scale of the large category columns, as `distrain synth --scale`
    rank_rows: int  # rows per rank and step
    steps: int  # steps of each training
    has_strong: bool  # whether to measure strong scaling, too


QUICK = Sizes(
    memory_bytes=64 * MIB,
    gpu_bytes=256 * MIB,
    product_rows=4096,
    product_s=3.0,
    file_bytes=64 * MIB,
    message_bytes=(KIB, 64 * KIB, MIB, 8 * MIB),
    message_budget_s=8.0,
    link_bytes=4 * MIB,
    repeats=5,
    data_rows=100_000,
    data_scale=0.01,
    rank_rows=4096,
    steps=36,
    has_strong=False,
)

FULL = Sizes(
    memory_bytes=512 * MIB,
    gpu_bytes=1024 * MIB,
    product_rows=8192,
    product_s=60.0,
    file_bytes=1024 * MIB,
    message_bytes=(KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB),
    message_budget_s=60.0,
    link_bytes=64 * MIB,
    repeats=10,
    data_rows=2_000_000,
    data_scale=0.1,
    rank_rows=16384,
    steps=240,
    has_strong=True,
)
