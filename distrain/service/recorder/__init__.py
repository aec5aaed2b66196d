"""Writes the run directories of all jobs, from what their schedulers report."""

from distrain.service.recorder.places import remove_old_runs as remove_old_runs
from distrain.service.recorder.recorder import Recorder as Recorder
