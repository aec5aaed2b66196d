"""The coordinator in the Dask scheduler: carries out what the job machine decides."""

from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin, ensure_coordinator
from distrain.scheduler.rendezvous import Stores, listen_for_store, rendezvous_ports

__all__ = [
    "CoordinatorPlugin",
    "PLUGIN_NAME",
    "Stores",
    "ensure_coordinator",
    "listen_for_store",
    "rendezvous_ports",
]
