"""Inputs and folders on any filesystem; outputs that appear whole or not at all."""

from distrain.storage.folder import (
    PAGE_BYTES,
    FileReader,
    FileWriter,
    Folder,
    open_folder,
)
from distrain.storage.identity import file_identity, size_as_version, version_in
from distrain.storage.inputs import InputFile, list_inputs, open_input
from distrain.storage.objects import (
    Changed,
    Objects,
    StoredObject,
    has_conditional_writes,
)
from distrain.storage.outputs import (
    check_apart,
    check_free,
    check_place,
    check_writable,
    translated_errors,
    whole_dir,
    whole_file,
)
from distrain.storage.retrying import (
    first_line,
    is_retrying,
    is_transient,
    stop_retrying_when,
    with_retries,
)
from distrain.storage.unfinished import partial_name
from distrain.storage.urls import check_url, is_remote, without_secrets

__all__ = [
    "Changed",
    "FileReader",
    "FileWriter",
    "Folder",
    "InputFile",
    "Objects",
    "PAGE_BYTES",
    "StoredObject",
    "check_apart",
    "check_free",
    "check_place",
    "check_url",
    "check_writable",
    "file_identity",
    "first_line",
    "has_conditional_writes",
    "is_remote",
    "is_retrying",
    "is_transient",
    "list_inputs",
    "open_folder",
    "open_input",
    "partial_name",
    "size_as_version",
    "stop_retrying_when",
    "translated_errors",
    "version_in",
    "whole_dir",
    "whole_file",
    "with_retries",
    "without_secrets",
]
