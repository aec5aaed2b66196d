"""Work on the workers of a Dask cluster: many tasks, and the folders that all of them see."""

from distrain.etl.workers.sharing import check_shared as check_shared
from distrain.etl.workers.tasks import (
    TaskRunner as TaskRunner,
    as_they_end as as_they_end,
    result_of as result_of,
)
