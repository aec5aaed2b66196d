"""The coordinator in the Dask scheduler: carries out what the lifecycle of jobs decides."""

from distrain.scheduler.plugin import (
    PLUGIN_NAME as PLUGIN_NAME,
    CoordinatorPlugin as CoordinatorPlugin,
    ensure_coordinator as ensure_coordinator,
)
from distrain.scheduler.rendezvous import (
    Stores as Stores,
    listen_for_store as listen_for_store,
    rendezvous_ports as rendezvous_ports,
)
