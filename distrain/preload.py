"""What a Dask scheduler loads: `dask scheduler --preload distrain.preload`.

It puts the coordinator in place before the first client comes. Without it the first
`distrain train --scheduler ADDRESS` installs the coordinator.
"""

from distributed import Scheduler

from distrain.coordinator.plugin import PLUGIN_NAME, CoordinatorPlugin


async def dask_setup(scheduler: Scheduler) -> None:
    """Dask calls this in the scheduler's process at its start."""
    await scheduler.register_scheduler_plugin(
        CoordinatorPlugin(), name=PLUGIN_NAME, idempotent=True
    )
