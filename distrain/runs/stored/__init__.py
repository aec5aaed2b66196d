"""Run directories in object stores."""

from distrain.runs.stored.folder import StoredFolder
from distrain.runs.stored.opening import fetch_run, open_run_folder, put_pictures
from distrain.runs.stored.stored_run import StoredRun

__all__ = ["StoredFolder", "StoredRun", "fetch_run", "open_run_folder", "put_pictures"]
