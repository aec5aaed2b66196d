"""Runs one job from its spec to a finished run directory; prints nothing."""

from distrain.running.checks import JobChecks as JobChecks
from distrain.running.detached import attach as attach, submit as submit
from distrain.running.python_api import Run as Run, fit as fit, load as load
from distrain.running.reporting import (
    LoggedProgress as LoggedProgress,
    Progress as Progress,
    step_line as step_line,
)
from distrain.running.resuming import (
    Resumption as Resumption,
    find_run as find_run,
    go_on as go_on,
    how_to_resume as how_to_resume,
    lead_or_follow as lead_or_follow,
)
from distrain.running.run import RunRequest as RunRequest, train as train
from distrain.running.tuning import Found as Found, Search as Search
