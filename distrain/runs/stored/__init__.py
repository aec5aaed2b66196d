"""Run directories in object stores."""

from distrain.runs.stored.folder import StoredFolder as StoredFolder
from distrain.runs.stored.opening import (
    fetch_run as fetch_run,
    open_run_folder as open_run_folder,
    put_pictures as put_pictures,
)
from distrain.runs.stored.stored_run import StoredRun as StoredRun
