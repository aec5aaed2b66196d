"""Reads and writes run directories; draws nothing."""

from distrain.runs.history import History
from distrain.runs.log_bytes import (
    BeyondLog,
    LogSlice,
    log_extent,
    log_pieces,
    read_log,
    read_log_slice,
    read_log_tail,
    what_was_left_out,
)
from distrain.runs.logs import LoggedError, RankLog, find_logs, first_error
from distrain.runs.recorder import (
    RunInUse,
    RunRecorder,
    check_new_run,
    open_run,
    reopen_run,
    take_over_run,
)
from distrain.runs.run_data import BROKEN_OFF, RUNNING, RunData, differences, read_run_data
from distrain.runs.run_file import RunFile, read_records, read_run_and_spec, read_summary, untrained
from distrain.runs.status import RunStatus, read_status
from distrain.runs.summary import Summary, summarise

__all__ = [
    "BROKEN_OFF",
    "BeyondLog",
    "History",
    "LogSlice",
    "LoggedError",
    "RUNNING",
    "RankLog",
    "RunData",
    "RunFile",
    "RunInUse",
    "RunRecorder",
    "RunStatus",
    "Summary",
    "check_new_run",
    "differences",
    "find_logs",
    "first_error",
    "log_extent",
    "log_pieces",
    "open_run",
    "read_log",
    "read_log_slice",
    "read_log_tail",
    "read_records",
    "read_run_and_spec",
    "read_run_data",
    "read_status",
    "read_summary",
    "reopen_run",
    "summarise",
    "take_over_run",
    "untrained",
    "what_was_left_out",
]
