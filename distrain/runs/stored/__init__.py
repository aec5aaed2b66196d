"""Run directories in object stores."""

from distrain.runs.stored.copy import StoredCopy as StoredCopy
from distrain.runs.stored.folder import (
    StoredFolder as StoredFolder,
    fetch_run as fetch_run,
    open_run_folder as open_run_folder,
    put_pictures as put_pictures,
)
