"""Loads parquet as shuffled batches in bounded memory, and assigns rows to ranks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrain.loader.dataset import Dataset as Dataset
    from distrain.loader.delivery.epoch import EpochIterator as EpochIterator
    from distrain.loader.delivery.stats import LoaderStats as LoaderStats
    from distrain.loader.delivery.transfer import Transform as Transform
    from distrain.loader.loader import Loader as Loader
    from distrain.loader.options import FetchOptions as FetchOptions

_MODULES = {
    "Dataset": "distrain.loader.dataset",
    "EpochIterator": "distrain.loader.delivery.epoch",
    "FetchOptions": "distrain.loader.options",
    "Loader": "distrain.loader.loader",
    "LoaderStats": "distrain.loader.delivery.stats",
    "Transform": "distrain.loader.delivery.transfer",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
