"""Writes the run directories of all jobs, from what their schedulers report."""

from distrain.service.recorder.places import (
    old_runs as old_runs,
    remove_old_runs as remove_old_runs,
)
from distrain.service.recorder.recorder import Recorder as Recorder
