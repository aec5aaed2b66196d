"""Runs one job from its spec to a finished run directory; prints nothing."""

from distrain.running.checks import Checked, preflight
from distrain.running.detached import attach, submit
from distrain.running.python_api import FinishedRun, fit
from distrain.running.reporting import LoggedProgress, Progress
from distrain.running.resuming import Resumption, find_run, how_to_resume
from distrain.running.run import Run, train

__all__ = [
    "Checked",
    "FinishedRun",
    "LoggedProgress",
    "Progress",
    "Resumption",
    "Run",
    "attach",
    "find_run",
    "fit",
    "how_to_resume",
    "preflight",
    "submit",
    "train",
]
