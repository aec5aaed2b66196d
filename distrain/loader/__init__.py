"""Decodes, shuffles and lays out row groups as batches, in background threads."""

from distrain.loader.dataset import Dataset as Dataset
from distrain.loader.delivery import (
    EpochIterator as EpochIterator,
    LoaderStats as LoaderStats,
    Transform as Transform,
)
from distrain.loader.loader import Loader as Loader
from distrain.loader.memory import (
    LoaderMemory as LoaderMemory,
    batches_held as batches_held,
    largest_chunk_rows as largest_chunk_rows,
    memory_of as memory_of,
)
from distrain.loader.options import (
    FetchOptions as FetchOptions,
    parse_bytes as parse_bytes,
    whole_number as whole_number,
)
from distrain.loader.tuning import (
    FooterSummary as FooterSummary,
    footer_summary as footer_summary,
    tuning_advice as tuning_advice,
)
