"""The preload module of a Dask scheduler: `dask scheduler --preload distrain.preload`.

Importing this module registers distrain's HTTP routes before Dask builds its own. Without the
preload, the first `distrain train --scheduler ADDRESS` installs the coordinator, which adds the
routes (`distrain.scheduler.http`). Jobs can be submitted over HTTP only with the preload.
"""

from distributed import Scheduler

from distrain.scheduler.http.attach import JobsPlugin, install
from distrain.scheduler.plugin import PLUGIN_NAME

install()


async def dask_setup(scheduler: Scheduler) -> None:
    await scheduler.register_scheduler_plugin(JobsPlugin(), name=PLUGIN_NAME, idempotent=True)
