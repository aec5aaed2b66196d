"""Jobs on one Dask cluster, or inline in this process: submit, look, wait, cancel."""

from distrain.submission.handle import JobHandle, list_jobs, raise_for_state
from distrain.submission.inline import run_inline

__all__ = [
    "JobHandle",
    "list_jobs",
    "raise_for_state",
    "run_inline",
]
