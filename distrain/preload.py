"""What a Dask scheduler loads: `dask scheduler --preload distrain.preload`.

Its import prepares the pages and documents of jobs, since Dask builds its routes and its dashboard
right after it; its set-up puts the coordinator in place before the first client comes. Without it
the first `distrain train --scheduler ADDRESS` installs the coordinator and adds all of that
(`distrain.monitor.late`).
"""

from distributed import Scheduler

from distrain.coordinator.plugin import PLUGIN_NAME, CoordinatorPlugin
from distrain.monitor.install import install, watch

install()


async def dask_setup(scheduler: Scheduler) -> None:
    """Dask calls this in the scheduler's process at its start."""
    await scheduler.register_scheduler_plugin(
        CoordinatorPlugin(), name=PLUGIN_NAME, idempotent=True
    )
    watch(scheduler)
