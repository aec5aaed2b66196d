"""Jobs on one Dask cluster, or inline in this process: submit, look, wait, cancel."""

from distrain.submission.handle import JobHandle, list_jobs, raise_for_state
from distrain.submission.inline import run_inline
from distrain.submission.worker_check import check_on_worker

__all__ = [
    "JobHandle",
    "check_on_worker",
    "list_jobs",
    "raise_for_state",
    "run_inline",
]
