"""Runs one job from its spec to a finished run directory; prints nothing."""

from distrain.running.checks import Checked, preflight
from distrain.running.detached import attach, submit
from distrain.running.python_api import Run, fit
from distrain.running.reporting import LoggedProgress, Progress, step_line
from distrain.running.resuming import Resumption, find_run, how_to_resume
from distrain.running.run import RunRequest, train

__all__ = [
    "Checked",
    "LoggedProgress",
    "Progress",
    "Resumption",
    "Run",
    "RunRequest",
    "attach",
    "find_run",
    "fit",
    "how_to_resume",
    "preflight",
    "step_line",
    "submit",
    "train",
]
