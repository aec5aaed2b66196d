"""Jobs and their histories as JSON, in bounded memory."""

from distrain.documents.job_history import RANK, TRAIN, VALID, JobHistory
from distrain.documents.job_json import (
    Gpu,
    Watched,
    eta_s,
    job_document,
    job_summary,
    jobs_document,
    metrics_document,
)
from distrain.documents.ranks import SHOWN_RANKS, SLOW, stands_out
from distrain.documents.series import Column, curve_limits

__all__ = [
    "Column",
    "Gpu",
    "JobHistory",
    "RANK",
    "SHOWN_RANKS",
    "SLOW",
    "TRAIN",
    "VALID",
    "Watched",
    "curve_limits",
    "eta_s",
    "job_document",
    "job_summary",
    "jobs_document",
    "metrics_document",
    "stands_out",
]
