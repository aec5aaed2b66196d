"""Input patterns to files, on any filesystem that fsspec knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from distrain.errors import DataError


@dataclass(frozen=True)
class InputFile:
    """One input file.

    Attributes:
        path: A local path, or a URL as fsspec takes it.
        size_bytes: Its size.
    """

    path: str
    size_bytes: int


def list_inputs(patterns: str | Sequence[str], *, suffixes: Sequence[str] = ()) -> list[InputFile]:
    """List the files that patterns name, in the order of the patterns, sorted within each.

    Args:
        patterns: Paths, folders, globs or URLs.
        suffixes: What a file's name may end in when a folder is listed; all files if empty.

    Raises:
        DataError: A pattern matches no file, or a file is empty (0 bytes).
    """
    found: list[InputFile] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = _matches(pattern, tuple(suffixes))
        if not matches:
            raise DataError(
                "no such file", where={"path": pattern}, hint="Check the path, or quote the glob."
            )
        found += matches
    for file in found:
        if file.size_bytes == 0:
            raise DataError(
                "the file is empty (0 bytes)",
                where={"file": file.path},
                hint="Its writer may have died; write it again or leave it out.",
            )
    return found


def open_input(path: str) -> IO[bytes]:
    """Open a file for reading bytes.

    Raises:
        DataError: It is missing or may not be read.
    """
    import fsspec

    try:
        handle: IO[bytes] = fsspec.open(path, "rb").open()
    except FileNotFoundError:
        raise DataError("no such file", where={"file": path}) from None
    except PermissionError:
        raise DataError(
            "may not read the file", where={"file": path}, hint="Check its permissions."
        ) from None
    return handle


def _matches(pattern: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    from fsspec.core import url_to_fs

    fs, path = url_to_fs(pattern)
    local = "file" in fs.protocol if isinstance(fs.protocol, tuple) else fs.protocol == "file"

    def named(found: str) -> str:
        return found if local else str(fs.unstrip_protocol(found))

    if any(mark in path for mark in "*?["):
        infos = fs.glob(path, detail=True).values()
    elif fs.isdir(path):
        infos = [
            info
            for info in fs.find(path, detail=True).values()
            if info["name"].endswith(suffixes or "") and not _is_hidden(info["name"])
        ]
    else:
        infos = [fs.info(path)] if fs.exists(path) else []
    files = [InputFile(named(i["name"]), int(i["size"])) for i in infos if i["type"] == "file"]
    return sorted(files, key=lambda file: file.path)


def _is_hidden(path: str) -> bool:
    # `_SUCCESS`, `.crc` and unfinished files are not data, by the convention of Spark and Hive.
    return path.rsplit("/", 1)[-1].startswith((".", "_"))
