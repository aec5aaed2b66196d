"""What a Dask scheduler loads: `dask scheduler --preload distrain.preload`.

Its import prepares the pages and documents of jobs, since Dask builds its routes and its dashboard
right after it. Without it the first `distrain train --scheduler ADDRESS` installs the coordinator
and adds all of that (`distrain.monitor.attach`).
"""

from distributed import Scheduler

from distrain.monitor import install, watch
from distrain.scheduler import PLUGIN_NAME, CoordinatorPlugin

install()


async def dask_setup(scheduler: Scheduler) -> None:
    """Dask calls this in the scheduler's process at its start."""
    await scheduler.register_scheduler_plugin(
        CoordinatorPlugin(), name=PLUGIN_NAME, idempotent=True
    )
    watch(scheduler)
