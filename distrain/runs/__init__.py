"""Reads and writes run directories; draws nothing."""

from distrain.runs.curve_reading import NewRecords, read_new_records
from distrain.runs.history import History
from distrain.runs.locks import RunInUse
from distrain.runs.log_bytes import (
    BeyondLog,
    LogFiles,
    LogSlice,
    log_extent,
    log_modified_s,
    log_pieces,
    read_log,
    read_log_slice,
    read_log_tail,
    what_was_left_out,
)
from distrain.runs.logs import LoggedError, RankLog, find_logs, first_error, silent_ranks
from distrain.runs.recorder import (
    RunRecorder,
    check_new_run,
    open_run,
    reopen_run,
    take_over_run,
)
from distrain.runs.run_data import BROKEN_OFF, RUNNING, RunData, differences, read_run_data
from distrain.runs.run_file import (
    RunFile,
    ServiceMark,
    read_records,
    read_run_and_spec,
    read_run_file,
    read_summary,
    untrained,
)
from distrain.runs.run_folder import DescriptorReader, FileInRun, FileReader, NotInRun, RunFolder
from distrain.runs.served import NotOurs, ServedRun, last_attempt
from distrain.runs.status import RunStatus, read_status
from distrain.runs.stored import (
    StoredFolder,
    StoredRun,
    fetch_run,
    open_run_folder,
    put_pictures,
)
from distrain.runs.summary import Summary, summarise

__all__ = [
    "BROKEN_OFF",
    "BeyondLog",
    "DescriptorReader",
    "FileInRun",
    "FileReader",
    "History",
    "LogFiles",
    "LogSlice",
    "LoggedError",
    "NotOurs",
    "NewRecords",
    "NotInRun",
    "RUNNING",
    "RankLog",
    "RunData",
    "RunFile",
    "RunFolder",
    "RunInUse",
    "RunRecorder",
    "RunStatus",
    "ServedRun",
    "ServiceMark",
    "StoredFolder",
    "StoredRun",
    "Summary",
    "check_new_run",
    "differences",
    "fetch_run",
    "find_logs",
    "first_error",
    "silent_ranks",
    "last_attempt",
    "log_extent",
    "log_modified_s",
    "log_pieces",
    "open_run",
    "open_run_folder",
    "put_pictures",
    "read_log",
    "read_log_slice",
    "read_log_tail",
    "read_new_records",
    "read_records",
    "read_run_and_spec",
    "read_run_data",
    "read_run_file",
    "read_status",
    "read_summary",
    "reopen_run",
    "summarise",
    "take_over_run",
    "untrained",
    "what_was_left_out",
]
