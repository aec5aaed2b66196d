"""Resolves input patterns to files, on any fsspec filesystem."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from distrain.errors import DataError, DistrainError, Unavailable
from distrain.storage.os_errors import reading_hint
from distrain.storage.prefixes import refuse_unfinished
from distrain.storage.ranges import RangeReader
from distrain.storage.retrying import RETRY_S, first_line, is_transient, with_retries
from distrain.storage.uploads import nameless_file
from distrain.storage.urls import check_url, is_remote

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
TABLE_SUFFIXES = (
    *PARQUET_SUFFIXES,
    *(".csv", ".tsv", ".jsonl", ".ndjson", ".gz", ".zst", ".zstd"),
)
"""The endings by which a file counts as a table if no target is named."""

_LOOK = "Check the path or the URL."
_FETCHED_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class InputFile:
    path: str
    size_bytes: int


def list_inputs(
    patterns: str | Sequence[str], *, suffixes: Sequence[str] = (), retry_s: float = 0.0
) -> list[InputFile]:
    """Return the files that match paths or globs: in the patterns' order, sorted within each.

    A file that matches several patterns is listed once, at the first. Numbers in names are sorted
    as numbers: `day_2` comes before `day_10`. For a folder, the files in it and in its subfolders
    are listed; if `suffixes` are given, only files whose names end in one of them. If a glob
    matches only folders, these folders are listed. Names that begin with `.` or `_` are skipped
    unless a pattern spells them out; `_NAME=VALUE` is not skipped.

    Raises:
        DataError: A pattern matches no file or cannot be looked up; or a file is empty (0 bytes),
            or in an unfinished output on an object store.
        Unavailable: The storage does not answer for `retry_s` seconds.
    """
    files: list[InputFile] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = with_retries(
            partial(_matches, pattern, tuple(suffixes)), {"path": pattern}, retry_s
        )
        if not matches:
            refuse_unfinished(pattern, retry_s)
            raise _nothing(pattern, suffixes)
        files += matches
    files = _once(files)
    for folder in sorted({file.path.rpartition("/")[0] for file in files if is_remote(file.path)}):
        refuse_unfinished(folder, retry_s)
    for file in files:
        if file.size_bytes == 0:
            raise DataError(
                "the file is empty (0 bytes)",
                where={"file": file.path},
                hint="Its writer may have died; write it again or leave it out.",
            )
    return files


def _once(files: Sequence[InputFile]) -> list[InputFile]:
    """Return each file once, where it occurs first.

    Files are equal even if their folder is spelled in several ways.
    """
    real: dict[str, str] = {}
    first: dict[tuple[str, str], InputFile] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if folder not in real:
            real[folder] = folder if is_remote(folder) else os.path.realpath(folder)
        first.setdefault((real[folder], name), file)
    return list(first.values())


def _nothing(pattern: str, suffixes: Sequence[str]) -> DataError:
    hint = "Check the path, or quote the glob."
    if not Path(pattern).is_dir():
        return DataError("no such file", where={"path": pattern}, hint=hint)
    kind = (
        f"no {' or '.join(f'*{suffix}' for suffix in suffixes)} files" if suffixes else "no files"
    )
    return DataError(
        f"no such file: the folder holds {kind}",
        where={"path": pattern},
        hint="Check the path; names that begin with `.` or `_` are ignored.",
    )


def open_input(path: str, *, retry_s: float = 0.0) -> IO[bytes]:
    """Open a file at a path or URL for reading bytes.

    With `retry_s`, a remote file is read by ranges of some MiB, and each range is retried for
    `retry_s` seconds. Raises `DataError`, or `Unavailable` if the storage does not answer.
    """
    if retry_s and is_remote(path):
        with _translated(path):
            return cast(IO[bytes], RangeReader(path, retry_s))
    import fsspec

    with _translated(path):
        handle: IO[bytes] = fsspec.open(path, "rb", expand=False).open()
    return handle


def open_unbuffered(path: str) -> IO[bytes]:
    """Open a remote file without read-ahead: each read is one request, if fsspec supports that.

    Raises the errors of `open_input`.
    """
    from fsspec.core import url_to_fs

    with _translated(path):
        filesystem, name = url_to_fs(path)
        try:
            handle: IO[bytes] = filesystem.open(name, "rb", cache_type="none")
        except TypeError:  # this filesystem does not support `cache_type`
            handle = filesystem.open(name, "rb")
    return handle


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a small file.

    Raises `OSError` for a local path, and the errors of `open_input` for a URL.
    """
    if not is_remote(path):
        return Path(path).read_bytes()
    with open_input(str(path), retry_s=RETRY_S) as handle:
        return handle.read()


@contextlib.contextmanager
def fetched(url: str) -> Iterator[str]:
    """Context manager of a local temporary file with the content of a URL.

    Its space is freed when it is no longer open or mapped. Raises the errors of `open_input`, and
    an `OutputError` if there is too little space.
    """
    with open_input(url, retry_s=RETRY_S) as handle, nameless_file(url) as temporary:
        with open(temporary, "wb", buffering=0) as to:
            while data := _read(handle, url):
                rest = memoryview(data)
                while rest:
                    rest = rest[to.write(rest) :]
        yield str(temporary)


def _read(handle: IO[bytes], path: str) -> bytes:
    with _translated(path):
        return handle.read(_FETCHED_AT_ONCE)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Context manager that converts a filesystem's errors to `DataError` or `Unavailable`.

    Transient errors become `Unavailable`.
    """
    check_url(path)
    try:
        yield
    except DistrainError:
        raise
    except Exception as error:  # remote filesystems have exceptions of their own
        ours = _translation(error, path)
        # In all other cases, the new message contains everything that the cause says.
        raise ours from (error if ours.hint == _LOOK or isinstance(ours, Unavailable) else None)


def _translation(error: Exception, path: str) -> DistrainError:
    where = {"file": path}
    if is_transient(error):
        message = f"cannot open the file now: {first_line(error)}"
        return Unavailable(message, where=where, hint="Check its server and the network.")
    match error:
        case FileNotFoundError():
            return DataError("no such file", where=where)
        case PermissionError():
            return DataError(
                "no permission to read the file", where=where, hint="Check its permissions."
            )
        case IsADirectoryError():
            return DataError("a folder, not a file", where=where)
        case ImportError():  # fsspec names the missing package
            hint = "Install that package here and on all workers, or use a local path."
            return DataError(f"cannot open the file: {error}", where=where, hint=hint)
    return DataError(f"cannot open the file: {error}", where=where, hint=reading_hint(error, _LOOK))


def _matches(pattern: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    from fsspec.core import url_to_fs

    with _translated(pattern):
        if not pattern.strip():
            raise ValueError("the path is empty")
        fs, path = url_to_fs(pattern)
        local = "file" in fs.protocol if isinstance(fs.protocol, tuple) else fs.protocol == "file"
        files = [
            _input_file(info, info["name"] if local else str(fs.unstrip_protocol(info["name"])))
            for info in _look_up(fs, path, suffixes)
        ]
    return sorted(files, key=lambda file: (_numbers_apart(file.path), file.path))


def _numbers_apart(path: str) -> list[str | int]:
    parts = re.split(r"([0-9]+)", path)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _look_up(fs: Any, path: str, suffixes: tuple[str, ...]) -> list[dict[str, Any]]:
    at_path = _info(fs, path)  # first, since a file's own name may contain a `[`
    if at_path is not None:
        is_folder = at_path["type"] == "directory"
        return _list_folder(fs, path, suffixes) if is_folder else [at_path]
    if not any(mark in path for mark in "*?["):
        return []
    fixed, spelled = _before_the_first_mark(path)
    found_paths = fs.glob(path, detail=True, **_raising(fs))
    infos = [_followed(fs, info) for info in found_paths.values()]
    if not spelled.startswith((".", "_")):
        infos = [info for info in infos if not _is_hidden(info["name"], fixed)]
    files = [info for info in infos if _is_file(info)]
    return files or [file for info in infos for file in _list_folder(fs, info["name"], suffixes)]


def _info(fs: Any, path: str) -> dict[str, Any] | None:
    """Return fsspec's information about a path; `None` if there is no file or folder.

    It raises the errors of the lookup, which fsspec's `exists` hides.
    """
    if "http" in fs.protocol and fs.isdir(path):  # HTTP's `info` supports files only
        return {"name": path, "type": "directory"}
    try:
        info: dict[str, Any] = fs.info(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        if is_transient(error):
            raise
        return None
    return info


def _raising(fs: Any) -> dict[str, str]:
    """Return arguments that make fsspec raise errors for unreadable local folders.

    By default, fsspec skips them. Returns no arguments for other filesystems.
    """
    from fsspec.implementations.local import LocalFileSystem

    return {"on_error": "raise"} if isinstance(fs, LocalFileSystem) else {}


def _list_folder(fs: Any, folder: str, suffixes: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        _followed(fs, info)
        for info in fs.find(folder, detail=True, **_raising(fs)).values()
        if _is_file(info)
        and info["name"].endswith(suffixes or "")
        and not _is_hidden(info["name"], folder)
    ]


def _is_file(info: dict[str, Any]) -> bool:
    """Return False for folders, and for the empty objects `FOLDER/` that some S3 tools write."""
    return info["type"] != "directory" and not info["name"].endswith("/")


def _followed(fs: Any, info: dict[str, Any]) -> dict[str, Any]:
    """Return the information about a link's target, under the link's name.

    Files, folders and broken links are returned unchanged.
    """
    if info["type"] in ("file", "directory"):
        return info
    try:
        return {**fs.info(info["name"]), "name": info["name"]}
    except FileNotFoundError:
        return info


def _before_the_first_mark(path: str) -> tuple[str, str]:
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if any(mark in part for mark in "*?["))
    return "/".join(parts[:first]), parts[first]


def _is_hidden(path: str, folder: str) -> bool:
    # By the convention of Spark and Hive, `_SUCCESS`, `.crc`, `_temporary/` and unfinished outputs
    # are not data, but `_day=3/` is a folder of data. Only names below `folder` count.
    inner = path.removeprefix(folder.rstrip("/"))
    parts = inner.split("/")
    return any(p.startswith(".") or (p.startswith("_") and "=" not in p) for p in parts)


def _input_file(info: dict[str, Any], name: str) -> InputFile:
    if info["type"] != "file":
        raise DataError(
            "not a file",
            where={"path": name},
            hint="A broken link, or a link to a folder: name that folder itself.",
        )
    if info["size"] is None:
        raise DataError(
            "the file's size is unknown",
            where={"file": name},
            hint="Its server must send a Content-Length; else copy the file here.",
        )
    return InputFile(name, int(info["size"]))
