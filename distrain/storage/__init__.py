"""Inputs and folders on any filesystem; outputs that appear whole or not at all."""

from distrain.storage.background import (
    BackgroundWriter as BackgroundWriter,
    Inbox as Inbox,
    in_thread as in_thread,
)
from distrain.storage.folder import (
    PAGE_BYTES as PAGE_BYTES,
    Folder as Folder,
    FolderFile as FolderFile,
    open_folder as open_folder,
    sync_path as sync_path,
)
from distrain.storage.identity import (
    file_identity as file_identity,
    size_as_version as size_as_version,
    version_in as version_in,
)
from distrain.storage.inputs import (
    InputFile as InputFile,
    fetched as fetched,
    list_inputs as list_inputs,
    open_input as open_input,
    open_unbuffered as open_unbuffered,
    read_bytes as read_bytes,
)
from distrain.storage.objects import (
    Changed as Changed,
    Objects as Objects,
    has_conditional_writes as has_conditional_writes,
)
from distrain.storage.os_errors import reading_hint as reading_hint
from distrain.storage.outputs import (
    check_apart as check_apart,
    check_free as check_free,
    check_output as check_output,
    check_place as check_place,
    check_writable as check_writable,
    lock_now as lock_now,
    locked_folder as locked_folder,
    no_pipe as no_pipe,
    read_file as read_file,
    scratch_folder as scratch_folder,
    translated_errors as translated_errors,
    whole_dir as whole_dir,
    whole_file as whole_file,
    whole_output as whole_output,
)
from distrain.storage.prefixes import refuse_unfinished as refuse_unfinished
from distrain.storage.ranges import (
    Connections as Connections,
    SignedRanges as SignedRanges,
    signed_ranges as signed_ranges,
)
from distrain.storage.retrying import (
    RETRY_S as RETRY_S,
    first_line as first_line,
    is_retrying as is_retrying,
    is_transient as is_transient,
    stop_retrying_when as stop_retrying_when,
    with_retries as with_retries,
)
from distrain.storage.unfinished import (
    boot_id as boot_id,
    started_ticks as started_ticks,
)
from distrain.storage.uploads import nameless_file as nameless_file
from distrain.storage.urls import (
    check_url as check_url,
    is_remote as is_remote,
    path_or_url as path_or_url,
    without_secrets as without_secrets,
)
