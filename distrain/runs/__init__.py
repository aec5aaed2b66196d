"""Reads and writes run directories; draws nothing."""

from distrain.runs.curve_reading import (
    NewRecords as NewRecords,
    read_new_records as read_new_records,
)
from distrain.runs.history import History as History
from distrain.runs.log_bytes import (
    BeyondLog as BeyondLog,
    LogFiles as LogFiles,
    LogSlice as LogSlice,
    log_extent as log_extent,
    log_modified_s as log_modified_s,
    log_pieces as log_pieces,
    read_log_slice as read_log_slice,
    read_log_tail as read_log_tail,
    what_was_left_out as what_was_left_out,
)
from distrain.runs.logs import (
    LoggedError as LoggedError,
    LogOfRank as LogOfRank,
    find_logs as find_logs,
    first_error as first_error,
    silent_ranks as silent_ranks,
)
from distrain.runs.places import LeasedFolder as LeasedFolder, NotOurs as NotOurs
from distrain.runs.recorder import (
    RunRecorder as RunRecorder,
    open_run as open_run,
    reopen_run as reopen_run,
    take_over_run as take_over_run,
)
from distrain.runs.run_data import (
    BROKEN_OFF as BROKEN_OFF,
    RUNNING as RUNNING,
    RunData as RunData,
    differences as differences,
    read_run_data as read_run_data,
)
from distrain.runs.run_file import (
    RunFile as RunFile,
    RunInUse as RunInUse,
    ServiceMark as ServiceMark,
    check_new_run as check_new_run,
    read_records as read_records,
    read_run_and_spec as read_run_and_spec,
    read_run_file as read_run_file,
    read_summary as read_summary,
    untrained as untrained,
)
from distrain.runs.run_folder import (
    FileInRun as FileInRun,
    NotInRun as NotInRun,
    RunFileReader as RunFileReader,
    RunFolder as RunFolder,
)
from distrain.runs.served import ServedRun as ServedRun
from distrain.runs.stored import (
    StoredCopy as StoredCopy,
    StoredFolder as StoredFolder,
    fetch_run as fetch_run,
    open_run_folder as open_run_folder,
    put_pictures as put_pictures,
)
from distrain.runs.summary import (
    RunStatus as RunStatus,
    Summary as Summary,
    read_status as read_status,
    summarise as summarise,
)
