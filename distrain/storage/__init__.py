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

__all__ = [
    "PAGE_BYTES",
    "FileReader",
    "FileWriter",
    "Folder",
    "InputFile",
    "check_free",
    "check_place",
    "check_writable",
    "list_inputs",
    "open_folder",
    "open_input",
    "translated_errors",
    "whole_dir",
    "whole_file",
]
