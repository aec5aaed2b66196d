"""Row groups to batches: decoded, shuffled and laid out by background threads."""

from distrain.loader.dataset import Dataset
from distrain.loader.delivery import Transform
from distrain.loader.epoch import EpochIterator
from distrain.loader.loader import Loader
from distrain.loader.stats import LoaderStats

__all__ = ["Dataset", "EpochIterator", "Loader", "LoaderStats", "Transform"]
