"""What a run leaves for people: the files of its run directory."""

from distrain.report.recorder import (
    RunInUse,
    RunRecorder,
    open_run,
    reopen_run,
    take_over_run,
)
from distrain.report.run_file import RunFile, read_records, read_run, read_summary
from distrain.report.standing import Standing, read_standing
from distrain.report.summary import Summary, summarise

__all__ = [
    "RunFile",
    "RunInUse",
    "RunRecorder",
    "Standing",
    "Summary",
    "open_run",
    "read_records",
    "read_run",
    "read_standing",
    "read_summary",
    "reopen_run",
    "summarise",
    "take_over_run",
]
