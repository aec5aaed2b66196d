"""Inputs and folders on any filesystem; outputs that appear whole or not at all."""

from distrain.storage.folder import (
    PAGE_BYTES,
    FileReader,
    FileWriter,
    Folder,
    open_folder,
)
from distrain.storage.identity import file_identity, size_as_version, version_in
from distrain.storage.inputs import (
    InputFile,
    fetched,
    list_inputs,
    open_input,
    open_unbuffered,
    read_bytes,
)
from distrain.storage.objects import (
    Changed,
    Objects,
    StoredObject,
    has_conditional_writes,
)
from distrain.storage.os_errors import reading_hint
from distrain.storage.outputs import (
    check_apart,
    check_free,
    check_output,
    check_place,
    check_writable,
    no_pipe,
    read_file,
    translated_errors,
    whole_dir,
    whole_file,
    whole_output,
)
from distrain.storage.prefixes import refuse_unfinished
from distrain.storage.retrying import (
    RETRY_S,
    first_line,
    is_retrying,
    is_transient,
    stop_retrying_when,
    with_retries,
)
from distrain.storage.scratch import scratch_folder
from distrain.storage.signed_urls import Connections, SignedRanges, signed_ranges
from distrain.storage.unfinished import partial_name
from distrain.storage.uploads import nameless_file
from distrain.storage.urls import check_url, is_remote, path_or_url, without_secrets

__all__ = [
    "Changed",
    "Connections",
    "FileReader",
    "FileWriter",
    "Folder",
    "InputFile",
    "Objects",
    "PAGE_BYTES",
    "RETRY_S",
    "SignedRanges",
    "StoredObject",
    "no_pipe",
    "read_file",
    "check_apart",
    "check_free",
    "check_output",
    "check_place",
    "check_url",
    "check_writable",
    "fetched",
    "file_identity",
    "first_line",
    "has_conditional_writes",
    "is_remote",
    "is_retrying",
    "is_transient",
    "list_inputs",
    "nameless_file",
    "open_folder",
    "open_input",
    "open_unbuffered",
    "partial_name",
    "path_or_url",
    "read_bytes",
    "reading_hint",
    "refuse_unfinished",
    "scratch_folder",
    "signed_ranges",
    "size_as_version",
    "stop_retrying_when",
    "translated_errors",
    "version_in",
    "whole_dir",
    "whole_file",
    "whole_output",
    "with_retries",
    "without_secrets",
]
