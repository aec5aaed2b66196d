"""Runs a job from its spec to a finished run directory, for the command line and for Python."""

from distrain.running.fitting import FinishedRun, fit
from distrain.running.progress import LoggedProgress, Progress
from distrain.running.run import Run, train

__all__ = ["FinishedRun", "LoggedProgress", "Progress", "Run", "fit", "train"]
