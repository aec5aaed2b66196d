"""The coordinator in the Dask scheduler: carries out what the job machine decides."""

from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin, ensure_coordinator

__all__ = [
    "CoordinatorPlugin",
    "PLUGIN_NAME",
    "ensure_coordinator",
]
