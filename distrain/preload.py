"""What a Dask scheduler loads: `dask scheduler --preload distrain.preload`.

Its import prepares the pages, documents and orders of jobs, since Dask builds its routes and its
dashboard right after it. Without it the first `distrain train --scheduler ADDRESS` installs the
coordinator and adds the pages (`distrain.scheduler.http`); orders over HTTP need the preload.
"""

from distributed import Scheduler

from distrain.scheduler.http.attach import JobsPlugin, install, show_jobs
from distrain.scheduler.plugin import PLUGIN_NAME

install()


async def dask_setup(scheduler: Scheduler) -> None:
    await scheduler.register_scheduler_plugin(JobsPlugin(), name=PLUGIN_NAME, idempotent=True)
    show_jobs(scheduler)
