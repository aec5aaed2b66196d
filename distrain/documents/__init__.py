"""Jobs and their histories as JSON, in bounded memory."""

from distrain.documents.job_history import JobHistory as JobHistory
from distrain.documents.job_json import (
    Gpu as Gpu,
    Watched as Watched,
    job_document as job_document,
    job_status as job_status,
    jobs_document as jobs_document,
    metrics_document as metrics_document,
    time_left_s as time_left_s,
)
from distrain.documents.ranks import (
    SHOWN_RANKS as SHOWN_RANKS,
    SLOW as SLOW,
    stands_out as stands_out,
)
from distrain.documents.series import curve_limits as curve_limits
