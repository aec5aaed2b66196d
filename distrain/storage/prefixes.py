"""Outputs on object stores that are either complete or marked as unfinished.

    OUT/.distrain-output.json      the output's maker, and whether it is finished (`claims.py`)
    OUT/.unfinished-ID/...         the unfinished objects; useless once the claim has ended
    OUT/...                        the output

A store has no rename. When all objects are written, the store itself copies them to their final
names, and a last small write marks the output as finished; until then readers reject the output.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from distrain.errors import DataError, DistrainError, OutputError
from distrain.storage.claims import (
    MADE,
    STATE_FILE,
    Claim,
    OutputState,
    in_progress_error,
    read_state,
)
from distrain.storage.folder import filesystem_of, open_folder
from distrain.storage.os_errors import only_os_errors
from distrain.storage.retrying import RETRY_S, with_retries
from distrain.storage.uploads import UNFINISHED, sent_errors
from distrain.storage.urls import is_remote

_COPIES_PER_TRY = 256
_READ_ONLY = {"http", "https", "ftp", "data", "github"}


@contextlib.contextmanager
def atomic_prefix(url: str) -> Iterator[str]:
    """Context manager of a prefix to fill; on success its objects get their names under `url`.

    A finished output is never replaced. Raises the errors of `atomic_output`.
    """
    url = url.rstrip("/")
    with _claimed(url) as claim, _removed(f"{url}/{UNFINISHED}{claim.id}") as place:
        yield place
        with sent_errors(url):
            _move(claim, place)


@contextlib.contextmanager
def temporary_prefix(folder: str) -> Iterator[str]:
    """Context manager of a new temporary prefix below the URL `folder`, removed at the end.

    At the start, the temporary prefixes that dead processes have left there are removed.
    """
    folder = folder.rstrip("/")
    with sent_errors(folder):
        _remove_left_held(folder)
    url = f"{folder}/{_HELD}{uuid.uuid4().hex[:8]}"
    with _claimed(url) as claim, _removed(f"{url}/{UNFINISHED}{claim.id}") as place:
        yield place


@contextlib.contextmanager
def _removed(place: str) -> Iterator[str]:
    try:
        yield place
    finally:
        # Leftovers are removed by the next process that makes the output.
        with contextlib.suppress(OSError, DistrainError):
            _remove(place)
            _abort_uploads(place)  # uploads of killed workers, or whose answers were lost


_HELD = "distrain-staging-"


def check_prefix(url: str) -> None:
    """Raise the error with which `atomic_prefix` would reject a URL, before any work is done."""
    url = url.rstrip("/")
    with sent_errors(url):
        _found(url)


def refuse_unfinished(url: str, retry_s: float = 0.0) -> None:
    """Raise a `DataError` if a URL, or one of the two folders above it, is an unfinished output.

    Raises `Unavailable` if the storage does not answer for `retry_s` seconds.
    """
    scheme = url.partition("://")[0]
    if not is_remote(url) or scheme in _READ_ONLY or "::" in url:
        return
    folder = url.rstrip("/")
    for _ in range(3):
        if not folder.partition("://")[2] or "*" in folder:
            break
        state = _readable_state(folder, retry_s)
        if state is not None and state.state != MADE:
            raise DataError(
                "this output is incomplete: the command that writes it has not finished",
                where={"path": folder, "made on": state.host},
                hint="Wait if the command that makes it still runs; otherwise run it again with "
                "the same --out: it starts over and removes the leftovers.",
            )
        folder = folder.rpartition("/")[0]


def _readable_state(folder: str, retry_s: float) -> OutputState | None:
    """Return the state of an output; `None` if it has none or the state's object is unreadable.

    Raises `OutputError` for a damaged state, and `Unavailable`.
    """
    try:
        return read_state(folder, retry_s)[0]
    except (OSError, NotImplementedError, DataError):
        return None


@contextlib.contextmanager
def _claimed(url: str) -> Iterator[Claim]:
    with sent_errors(url):
        claim = Claim(url, *_found(url))
    try:
        with sent_errors(url):
            _remove_left(url, claim)
        yield claim
    finally:
        # Errors of `end` are ignored: they must not hide an error of the block, and a claim that is
        # not released expires.
        with contextlib.suppress(OSError, DistrainError):
            claim.end()


def _found(url: str) -> tuple[OutputState | None, str]:
    """Return the state of an earlier output that this process may replace, and the state's version.

    `(None, "")` if there is none. Raises an `OutputError` if the URL is a whole bucket, if another
    process makes the output, if the output is finished, or if objects are there that are not an
    output.
    """
    bucket, _, path = url.partition("://")[2].partition("/")
    if not bucket or not path:
        raise OutputError(
            "an output needs a prefix of its own",
            where={"path": url},
            hint="Name one in the bucket: s3://BUCKET/PATH.",
        )
    _names(url)  # otherwise reading the state would be retried for minutes
    state, version = read_state(url)
    if state is None:
        names = _objects(url).keys()
        if STATE_FILE in names:  # another process has started in the meantime
            state, version = read_state(url)
    if state is None:
        # Tasks of an abandoned command may have finished uploads, which `_remove_left` removes.
        if any(name != STATE_FILE and not name.startswith(UNFINISHED) for name in names):
            raise OutputError(
                "there are objects that are not an output of a distrain command",
                where={"path": url},
                hint="Choose another name, or remove them yourself.",
            )
        return None, ""
    if state.left_s(time.time()) > 0:
        raise in_progress_error(url, state)
    if state.state == MADE:
        raise OutputError(
            "the output exists already",
            where={"path": url},
            hint="Choose a new prefix: outputs in object stores are not replaced. Or remove it.",
        )
    return state, version


def _names(url: str) -> list[str]:
    return with_retries(lambda: open_folder(url).folders(), {"path": url}, RETRY_S)


def _objects(url: str) -> dict[str, int]:
    def find() -> dict[str, int]:
        filesystem, path = filesystem_of(url)
        filesystem.invalidate_cache()
        with only_os_errors():
            infos = filesystem.find(path, detail=True)
        start = len(path) + 1
        return {n[start:]: int(info["size"]) for n, info in infos.items() if len(n) > start}

    return with_retries(find, {"path": url}, RETRY_S)


def _delete(url: str, names: list[str]) -> None:
    def delete() -> None:
        filesystem, path = filesystem_of(url)
        with only_os_errors(), contextlib.suppress(FileNotFoundError):
            filesystem.rm([f"{path}/{name}" for name in names])

    if names:
        with_retries(delete, {"path": url}, RETRY_S)


def _remove(url: str) -> None:
    _delete(url, list(_objects(url)))


def _copy(source: str, target: str, names: list[str], before_some: Callable[[], None]) -> None:
    for first in range(0, len(names), _COPIES_PER_TRY):
        some = names[first : first + _COPIES_PER_TRY]
        before_some()

        def copy(some: list[str] = some) -> None:
            filesystem, old = filesystem_of(source)
            new = filesystem_of(target)[1]
            olds, news = [f"{old}/{n}" for n in some], [f"{new}/{n}" for n in some]
            with only_os_errors():
                filesystem.copy(olds, news, on_error="raise")

        with_retries(copy, {"path": target}, RETRY_S)


def _move(claim: Claim, place: str) -> None:
    objects = _objects(place)
    claim.has_objects = True
    # A process that was suspended for long may have lost its claim to another process.
    _copy(place, claim.url, sorted(objects), claim.renew)
    there = _objects(claim.url)
    there.pop(STATE_FILE, None)
    for name, size in objects.items():
        if there.get(name) != size:
            raise OutputError(
                "an object is missing after its copy",
                where={"path": f"{claim.url}/{name}", "bytes": size},
                hint="Start again; the output is marked as unfinished.",
            )
    claim.renew()
    # All other objects are removed, such as late uploads of a killed command's tasks.
    own = f"{UNFINISHED}{claim.id}/"
    _delete(claim.url, sorted(n for n in there.keys() - objects.keys() if not n.startswith(own)))
    claim.finish(objects)


def _remove_left(url: str, claim: Claim) -> None:
    """Remove the objects and unfinished uploads under `url` that killed processes have left.

    These are all objects except `STATE_FILE` and the claim's own.
    """
    own = f"{UNFINISHED}{claim.id}/"
    _delete(url, [n for n in _objects(url) if n != STATE_FILE and not n.startswith(own)])
    _abort_uploads(url)


def _abort_uploads(url: str) -> None:
    """Abort the unfinished uploads below an S3 URL: a store keeps, and bills, their parts.

    Killed processes leave them. Uploads of running processes are aborted, too. Errors are ignored,
    and other kinds of URL skipped.
    """
    filesystem, path = filesystem_of(url)
    if "s3" not in filesystem.protocol:
        return
    bucket, _, prefix = path.partition("/")
    query = {"Bucket": bucket, "Prefix": f"{prefix}/"}

    def abort() -> None:
        start: dict[str, str] = {}
        with only_os_errors():
            while True:
                page: Any = filesystem.call_s3("list_multipart_uploads", **query, **start)
                for one in page.get("Uploads", ()):
                    filesystem.call_s3(
                        "abort_multipart_upload",
                        Bucket=bucket,
                        Key=one["Key"],
                        UploadId=one["UploadId"],
                    )
                if not page.get("IsTruncated"):
                    return
                start = {
                    "KeyMarker": page["NextKeyMarker"],
                    "UploadIdMarker": page["NextUploadIdMarker"],
                }

    # Stores without such uploads, or without permission to list them, are skipped.
    with contextlib.suppress(OSError, NotImplementedError, DistrainError):
        with_retries(abort, {"path": url}, 0.0)


def _remove_left_held(folder: str) -> None:
    for name in _names(folder):
        if not name.startswith(_HELD):
            continue
        state, _ = read_state(f"{folder}/{name}")
        if state is None or state.left_s(time.time()) == 0:
            _remove(f"{folder}/{name}")
            _abort_uploads(f"{folder}/{name}")
