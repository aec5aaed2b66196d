"""Row groups to batches: decoded, shuffled and laid out by background threads."""

from distrain.loader.epoch import EpochIterator
from distrain.loader.loader import Loader

__all__ = ["EpochIterator", "Loader"]
