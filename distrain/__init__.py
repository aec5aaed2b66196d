"""distrain trains click-through-rate models on tables such as Criteo's, on a Dask cluster.

Importing this package loads no torch, dask, pandas or cudf; names resolve on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distrain.version import __version__

if TYPE_CHECKING:
    from distrain.errors import DistrainError
    from distrain.loader import Dataset, Loader
    from distrain.running import Run, fit, load
    from distrain.schema import ColumnSchema, Schema, Tags
    from distrain.spec import JobSpec

_HOMES = {
    "ColumnSchema": "distrain.schema",
    "Dataset": "distrain.loader",
    "DistrainError": "distrain.errors",
    "JobSpec": "distrain.spec",
    "Loader": "distrain.loader",
    "Run": "distrain.running",
    "Schema": "distrain.schema",
    "Tags": "distrain.schema",
    "fit": "distrain.running",
    "load": "distrain.running",
}

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'distrain' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
