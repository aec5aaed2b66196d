"""Where bytes come from and how outputs appear: whole, or not at all."""

from distrain.storage.folder import FileReader, FileWriter, Folder
from distrain.storage.folders import open_folder
from distrain.storage.inputs import InputFile, list_inputs, open_input
from distrain.storage.local_folder import PAGE_BYTES
from distrain.storage.outputs import (
    check_free,
    check_place,
    check_writable,
    translated_errors,
    whole_dir,
    whole_file,
)
from distrain.storage.patience import first_line, is_waiting, patiently, stop_when
from distrain.storage.transient import may_pass
from distrain.storage.urls import check_url, without_secrets

__all__ = [
    "PAGE_BYTES",
    "FileReader",
    "FileWriter",
    "Folder",
    "InputFile",
    "check_free",
    "check_place",
    "check_url",
    "check_writable",
    "first_line",
    "is_waiting",
    "list_inputs",
    "may_pass",
    "open_folder",
    "open_input",
    "patiently",
    "stop_when",
    "translated_errors",
    "whole_dir",
    "whole_file",
    "without_secrets",
]
