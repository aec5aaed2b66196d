"""Outputs that appear complete or not at all.

Everything is written under a temporary name next to its final one, synced, and renamed. A reader
never sees half a file. A crash leaves at most a `.NAME.partial-*`; if it is a folder, the next
process that makes NAME removes it. Object stores cannot rename: see `uploads.py` for files and
`prefixes.py` for folders.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from distrain.errors import OutputError
from distrain.storage.folder import sync_path
from distrain.storage.os_errors import TOO_MANY_OPEN
from distrain.storage.prefixes import atomic_prefix, check_prefix, temporary_prefix
from distrain.storage.unfinished import (
    check_not_in_progress,
    make_locked,
    partial_name,
    remove_aside,
    remove_left,
    remove_unfinished_files,
    replaced_name,
)
from distrain.storage.uploads import uploaded
from distrain.storage.urls import is_remote, url_of

_HINTS = {
    errno.ENOSPC: "The disk is full: free some space or choose another place.",
    errno.EDQUOT: "The disk quota is used up: free some space or choose another place.",
    errno.EFBIG: "The file is larger than this filesystem or `ulimit -f` allows.",
    errno.EACCES: "No permission to write there: check the permissions or choose another place.",
    errno.EPERM: "No permission to write there: check the permissions or choose another place.",
    errno.EROFS: "That filesystem is read-only: choose another place.",
    errno.EISDIR: "There is a folder of that name: remove it or choose another name.",
    errno.ENOTDIR: "A part of the path is a file, not a folder.",
    errno.EEXIST: "It exists already: remove it or choose another name.",
    errno.EMFILE: TOO_MANY_OPEN,
    errno.ENFILE: TOO_MANY_OPEN,
    errno.ENOTEMPTY: "It exists already: remove it or choose another name.",
}


@contextlib.contextmanager
def translated_errors(path: str | Path) -> Iterator[None]:
    """Context manager that converts an `OSError` to an `OutputError` with `path` and a hint.

    It converts every `OSError` of the block, also of reading: then the message would be wrong.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(
            f"could not write: {reason}",
            where={"path": str(path)},
            hint=_HINTS.get(error.errno or 0, "Check the disk and the permissions."),
        ) from error


def no_pipe(path: str, flags: int) -> int:
    """Open a regular file and return its descriptor; usable as `opener` of the built-in `open`.

    Raises `OSError` for links, FIFOs and devices: a FIFO may block for ever, and a link could lead
    to files outside the folder.
    """
    if os.path.islink(path):
        raise OSError(f"it is a symbolic link: {path}")
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(f"it is not a file, but a FIFO or a device: {path}")


def read_file(path: Path, most_bytes: float = 2**26) -> bytes:
    """Return the content of a file in a folder to which other users can write.

    Raises `OSError` for more than `most_bytes`, and for files that `no_pipe` rejects.
    """
    with open(path, "rb", opener=no_pipe) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > most_bytes:
            raise OSError(f"it has {size_bytes:,} bytes, more than {most_bytes:,}: {path}")
        return file.read()


@contextlib.contextmanager
def atomic_file(path: str | Path, *, make_folder: bool = True, sync: bool = True) -> Iterator[Path]:
    """Context manager of a temporary path to write; on success it is synced and renamed to `path`.

    An existing file is replaced atomically; after an error `path` is unchanged.

    Args:
        path: For a URL, a `str`: the content is written to a local unlinked file, then uploaded.
        make_folder: Create the file's folder if missing. A task that writes to its caller's folder
            passes False, since it must not recreate a folder that its caller has abandoned.
        sync: Pass False inside an `atomic_dir`, which syncs all its files at the end.

    Raises:
        OutputError: The file could not be written.
        Unavailable: The store of a URL does not answer.
    """
    if is_remote(path) and isinstance(path, str):
        with uploaded(path) as temporary:
            yield temporary
        return
    final = Path(path)
    _refuse_url(final)
    partial = partial_name(final)
    try:
        with translated_errors(final):
            if make_folder:
                final.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            if sync:
                sync_path(partial)
            partial.rename(final)
            if sync:
                sync_path(final.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_output(path: str | Path, *, replace: bool = False) -> Iterator[str]:
    """Context manager of a path or URL to fill: `atomic_dir` for a path, `atomic_prefix` for a URL.

    An output in an object store is never replaced, even with `replace`. For a URL, also raises
    `OutputError` if objects are there that are not an output, and `Unavailable` if the store does
    not answer.
    """
    if is_remote(path) and isinstance(path, str):
        with atomic_prefix(path) as url:
            yield url
    else:
        with atomic_dir(path, replace=replace) as folder:
            yield str(folder)


@contextlib.contextmanager
def atomic_dir(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Context manager of a temporary folder to fill; on success it is synced and renamed to `path`.

    Errors name a file by its final name. After an error the folder is renamed before it is removed,
    so that tasks which still write into it cannot create new files there. Leftovers of killed
    processes and tasks are removed.

    Raises:
        OutputError: `path` exists and `replace` is false, or it is not a folder, or another process
            makes it, or writing failed.
    """
    final = Path(path)
    if os.path.islink(final):  # write its target, and keep the link
        final = final.resolve()
    partial = partial_name(final)
    try:
        with translated_errors(final), contextlib.ExitStack() as held:
            check_free(final, replace)
            held.enter_context(make_locked(partial))
            check_not_in_progress(final, own=partial)
            remove_left(final, own=partial)
            _refuse_taken(final, replace)  # again: `remove_left` may have restored a folder
            yield partial
            remove_unfinished_files(partial)
            for file in sorted(partial.rglob("*")):
                sync_path(file)
            sync_path(partial)
            if replace:
                _swap(partial, final)
            else:
                partial.rename(final)  # fails if another process was faster
            sync_path(final.parent)
    except OutputError as error:
        where = {k: str(v).replace(str(partial), str(final)) for k, v in error.where.items()}
        if where == {k: str(v) for k, v in error.where.items()}:
            raise
        raise OutputError(error.message, where=where, hint=error.hint) from error.__cause__
    finally:
        remove_aside(partial)


def _refuse_url(path: str | Path) -> None:
    """Raise an `OutputError` for a URL, which would become a local folder of that name."""
    if (url := url_of(path)) is not None:
        raise OutputError(
            "this output cannot be a URL",
            where={"path": url},
            hint="This command writes to local folders: name one, and copy it.",
        )


def check_free(path: str | Path, replace: bool) -> None:
    """Raise the error with which `atomic_dir` would reject `path`, before any work is done."""
    final = Path(path)
    _refuse_url(final)
    with translated_errors(final):
        _refuse_taken(final, replace)
        check_not_in_progress(final)


def check_output(path: str | Path, replace: bool) -> None:
    """Raise the error with which `atomic_output` would reject `path`, before any work is done."""
    if is_remote(path) and isinstance(path, str):
        check_prefix(path)
    else:
        check_free(path, replace)


def check_inputs_outside(path: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raise an `OutputError` if an input is in the output's folder: replacing would remove it.

    An input that is the output itself counts, too. Inputs at URLs are only compared with an output
    at a URL, and local ones with a local output.
    """
    of_url = is_remote(path)
    out = Path(path).resolve()
    for used in inputs:
        if is_remote(used) != of_url:
            continue
        place = Path(used).resolve()
        if of_url:
            holds = f"{used}/".startswith(f"{str(path).rstrip('/')}/")
        else:
            holds = out in (place, *place.parents)
        if holds:
            raise OutputError(
                "the output's folder holds one of its inputs",
                where={"path": str(path), "input": str(used)},
                hint="Name another folder: replacing this one would remove the input.",
            )


def _refuse_taken(final: Path, replace: bool) -> None:
    if final.exists() and not final.is_dir():
        raise FileExistsError(errno.EEXIST, "a file of that name exists")
    if final.exists() and not replace:
        raise OutputError(
            "the output exists already",
            where={"path": str(final)},
            hint="Remove it, choose another name, or pass --overwrite.",
        )


def check_writable(folder: str | Path) -> None:
    """Raise an `OutputError` unless `folder`, created if missing, is writable."""
    folder = Path(folder)
    _refuse_url(folder)
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_probe(folder)


def check_place(folder: str | Path) -> None:
    """Raise an `OutputError` if `folder` could not be created or written; leaves nothing behind."""
    folder = Path(folder).absolute()
    with translated_errors(folder):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()  # `exists` is False for names that no folder can have
        places = (folder, *folder.parents)
        # A link to a missing folder is in the way of `mkdir`.
        nearest = next(place for place in places if place.exists() or place.is_symlink())
        if nearest == folder:
            _write_probe(folder)
        else:
            probe = nearest / f".writable-{uuid.uuid4().hex}"
            probe.mkdir()
            probe.rmdir()


def _write_probe(folder: Path) -> None:
    probe = folder / f".writable-{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"distrain")
    finally:
        probe.unlink(missing_ok=True)


def _swap(partial: Path, final: Path) -> None:
    if not final.exists():
        partial.rename(final)
        return
    old = replaced_name(final)
    try:
        final.rename(old)
        partial.rename(final)
    except BaseException:  # also Ctrl-C between the two
        if old.exists() and not final.exists():
            old.rename(final)
        raise
    shutil.rmtree(old, ignore_errors=True)


_NAME = "distrain-staging"


@contextlib.contextmanager
def scratch_folder(place: str | Path) -> Iterator[str]:
    """Context manager of a new temporary folder in a folder, or of a new prefix below a URL.

    It is removed at the end. At the start, the temporary folders that dead processes have left in
    `place` are removed.
    """
    if is_remote(place):
        with temporary_prefix(str(place)) as url:
            yield url
        return
    final = Path(place).absolute() / _NAME
    own = partial_name(final)
    with contextlib.ExitStack() as held:
        with translated_errors(final):
            held.enter_context(make_locked(own))
            remove_left(final, own=own)
        try:
            yield str(own)
        finally:
            remove_aside(own)


@contextlib.contextmanager
def locked_folder(folder: Path, refusal: OutputError) -> Iterator[None]:
    """Context manager that holds a folder's lock, if its filesystem supports locks.

    Raises `refusal` if another process holds the lock, and an `OutputError` if the folder cannot be
    opened.
    """
    with translated_errors(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        lock_now(handle, refusal)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def waiting_lock(output: Path, on_wait: Callable[[], object]) -> Iterator[None]:
    """Context manager that waits for the lock of an output, and holds it.

    For outputs that several processes or threads may make at the same time. The lock is a file
    beside `output`, removed at the end. A process that dies releases its lock. On a filesystem
    without locks, nothing is locked and the block runs at once.

    Args:
        on_wait: Called before waiting, if another process or thread holds the lock.

    Raises:
        OutputError: The lock file cannot be made.
    """
    path = output.with_name(f".{output.name}.lock")
    with translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _lock_file(path, on_wait)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _lock_file(path: Path, on_wait: Callable[[], object]) -> int:
    """Create the file at `path`, wait for its lock, and return its descriptor.

    Calls `on_wait` before waiting. On a filesystem without locks, the file is not locked.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            _wait_for_lock(handle)
        except OSError:  # a filesystem without locks
            return handle
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)  # the last holder of the lock has removed this file; try again


def _wait_for_lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except BaseException:  # Ctrl-C while waiting
        os.close(handle)
        raise


def lock_now(descriptor: int, refusal: OutputError) -> None:
    """Lock an open file or folder until it is closed, if its filesystem supports locks.

    Raises `refusal` if another process has locked it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refusal from None
    except OSError:
        pass
