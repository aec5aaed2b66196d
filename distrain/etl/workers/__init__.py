"""Work on the workers of a Dask cluster: many tasks, and the folders that all of them see."""

from distrain.etl.workers.sharing import check_shared as check_shared
from distrain.etl.workers.tasks import TaskRunner as TaskRunner
