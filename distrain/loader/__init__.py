"""Decodes, shuffles and lays out row groups as batches, in background threads."""

from distrain.loader.dataset import Dataset
from distrain.loader.delivery import EpochIterator, LoaderStats, Transform
from distrain.loader.loader import Loader
from distrain.loader.memory import LoaderMemory, batches_held, largest_chunk_rows, memory_of
from distrain.loader.options import parse_bytes, whole_number
from distrain.loader.reading import FetchOptions
from distrain.loader.tuning import FooterSummary, footer_summary, tuning_advice

__all__ = [
    "Dataset",
    "EpochIterator",
    "FetchOptions",
    "FooterSummary",
    "Loader",
    "LoaderMemory",
    "LoaderStats",
    "Transform",
    "batches_held",
    "footer_summary",
    "largest_chunk_rows",
    "memory_of",
    "parse_bytes",
    "tuning_advice",
    "whole_number",
]
