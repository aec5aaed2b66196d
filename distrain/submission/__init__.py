"""Jobs on one Dask cluster, or in this process: submit, look, wait, cancel."""

from distrain.submission.handle import (
    JobHandle as JobHandle,
    check_on_worker as check_on_worker,
    list_jobs as list_jobs,
    raise_for_state as raise_for_state,
)
from distrain.submission.inline import run_inline as run_inline
from distrain.submission.launched import Gang as Gang, Launch as Launch, follow as follow
