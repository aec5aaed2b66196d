"""distrain trains click and recommendation models on tables: on Dask, torchrun, Slurm, or alone.

Importing this package loads no torch, dask, pandas or cudf; names resolve on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distrain.version import __version__

if TYPE_CHECKING:
    from distrain.errors import DistrainError
    from distrain.jobs.spec.job import JobSpec
    from distrain.launch.python_api import Run, fit, load
    from distrain.loader.dataset import Dataset
    from distrain.loader.loader import Loader
    from distrain.schema.column import ColumnSchema, Tags
    from distrain.schema.schema import Schema

__all__ = [
    "ColumnSchema",
    "Dataset",
    "DistrainError",
    "JobSpec",
    "Loader",
    "Run",
    "Schema",
    "Tags",
    "__version__",
    "fit",
    "load",
]


_MODULES = {
    "ColumnSchema": "distrain.schema.column",
    "Dataset": "distrain.loader.dataset",
    "DistrainError": "distrain.errors",
    "JobSpec": "distrain.jobs.spec.job",
    "Loader": "distrain.loader.loader",
    "Run": "distrain.launch.python_api",
    "Schema": "distrain.schema.schema",
    "Tags": "distrain.schema.column",
    "fit": "distrain.launch.python_api",
    "load": "distrain.launch.python_api",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'distrain' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
