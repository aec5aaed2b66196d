"""Deltas: changed embedding rows and complete small files that turn one export into the next.

    python deltas.py OUT BASE DELTA ...    applies the deltas to BASE, in order, and writes OUT

A copy of this file is in every folder that `distrain export --since` wrote, and needs NumPy alone.
Beside it:

    delta.json    versions before and after, hashes of files, and the pieces of patches
    whole/        complete copies of new files, and of changed files without tables
    patches/      for each changed file with tables: the changed rows, and the bytes between tables
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

FORMAT = 2
MANIFEST, DELTA = "manifest.json", "delta.json"
WHOLE, PATCHES, VOCABULARIES = "whole", "patches", "vocabularies"
ROWS_AT_ONCE = 65536
PLACE = np.dtype("<u8")
"""The type of a changed row's index in its table."""
KEYS, ORDER = ".keys.npy", ".order.npy"
"""Suffixes of the files with a vocabulary's keys, one for each value, and their sort order."""


class DamagedExport(Exception):
    """A file of an export or a delta is missing, unreadable or was modified."""


class WrongDelta(Exception):
    """A delta does not start at the version of the export."""


class Delta:
    """A delta: a folder that `distrain export --since` wrote.

    Attributes:
        before, after: The versions of the exports before and after the delta.
        document: The content of `delta.json`.
        files: By path, the SHA-256 of each file of the export after the delta.

    Raises:
        DamagedExport: A file of the delta is missing or was modified.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.name = self.folder.name
        self.document = _signed(self.folder / DELTA)
        try:
            self.before, self.after, self.files, own = (
                self.document[key] for key in ("before", "after", "files", "own")
            )
        except KeyError as error:
            raise DamagedExport(f"{DELTA} of {self.name} lacks {error}") from None
        if any(".." in name.split("/") or name.startswith("/") for name in self.files):
            raise DamagedExport(f"{DELTA} of {self.name} names files outside of its folder")
        check_files(self.folder, own)


def verified(folder: Path) -> dict[str, Any]:
    """Return the manifest of a complete export, after checking the hashes of all its files.

    Raises:
        DamagedExport: A file is missing or was modified.
    """
    manifest = _signed(folder / MANIFEST)
    check_files(folder, manifest["files"])
    return manifest


def signed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a further entry `version`, a hash of the other entries."""
    text = json.dumps(document, sort_keys=True)
    return {**document, "version": hashlib.sha256(text.encode()).hexdigest()}


def _signed(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        form = document["format"]
        is_whole = signed({k: v for k, v in document.items() if k != "version"}) == document
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedExport(f"{file} cannot be read: {error}") from None
    if form != FORMAT:
        raise DamagedExport(f"{file} has format {form}, not {FORMAT}")
    if not is_whole:
        raise DamagedExport(f"{file} is not the file that was exported")
    return document


def apply_deltas(out: str | Path, base: str | Path, deltas: Sequence[str | Path]) -> None:
    """Apply deltas to an export, and write the result, which equals a complete export.

    Args:
        out: A folder that does not exist yet. It appears complete or not at all.
        base: A complete export.
        deltas: Folders of deltas. The first was written against `base`, and each later delta
            against the result of the delta before it.

    Raises:
        WrongDelta: A delta is missing, repeated or out of order; the message names it.
        DamagedExport: A file is missing or was modified; the message names it.
        FileExistsError: `out` exists.
    """
    final, folder = Path(out).absolute(), Path(base)
    if final.exists():
        raise FileExistsError(f"{out} exists already")
    opened = [Delta(one) for one in deltas]
    check_chain(_signed(folder / MANIFEST)["version"], str(base), opened)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{final.name}-") as scratch:
        for number, delta in enumerate(opened):
            following = Path(scratch) / str(number)
            _make(folder, delta, following)
            check_files(following, delta.files)
            if number:
                shutil.rmtree(folder)
            folder = following
        if not opened:
            check_files(folder, _signed(folder / MANIFEST)["files"])
            folder = Path(shutil.copytree(base, Path(scratch) / "copy"))
        folder.rename(final)


def check_chain(version: str, base: str, deltas: Sequence[Delta]) -> None:
    """Raise `WrongDelta` unless each delta starts at the version that the delta before it makes.

    The first delta must start at `version`, the version of an export that is called `base`.
    """
    been, at = {version}, base
    for place, delta in enumerate(deltas):
        if delta.before != version:
            here = f"{delta.name} starts at version {delta.before[:12]}, but {at} is version "
            here += version[:12]
            others = [one.name for one in deltas[place + 1 :] if one.before == version]
            if delta.after in been:
                why = f"{delta.name} was applied already"
            elif others:
                why = f"{others[0]} comes first"
            else:
                why = "a delta between them is missing, or this is a different export"
            raise WrongDelta(f"{here}: {why}")
        version, at = delta.after, delta.name
        been.add(version)


def _make(before: Path, delta: Delta, after: Path) -> None:
    patches = delta.document[PATCHES]
    for name in sorted(delta.files):
        (after / name).parent.mkdir(parents=True, exist_ok=True)
        whole = delta.folder / WHOLE / name
        if name in patches:
            with (
                (delta.folder / PATCHES / name).open("rb") as patch,
                (after / name).open("wb") as file,
            ):
                for piece in patched(before / name, patches[name], patch):
                    file.write(piece)
        elif name.endswith(ORDER) and not whole.exists():
            save_order(after / name)
        else:
            shutil.copyfile(whole if whole.exists() else before / name, after / name)


def save_order(file: Path) -> None:
    """Write the permutation that sorts a vocabulary's keys; the keys' file is beside `file`."""
    keys = np.load(file.with_name(file.name.removesuffix(ORDER) + KEYS))
    np.save(file, np.argsort(keys, kind="stable"))


def patched(old: Path, pieces: Sequence[Mapping[str, Any]], patch: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file, from its previous version `old` and the pieces of its patch.

    A piece is an entry of `delta.json`, about a range of the file: bytes to copy from `patch`, or a
    table, whose changed rows are in `patch`.
    """
    for piece in pieces:
        if "bytes" in piece:
            yield patch.read(piece["bytes"])
            continue
        places = np.frombuffer(patch.read(piece["changed"] * PLACE.itemsize), PLACE)
        width = piece["row_bytes"]
        table = rows_at(old, piece["old_offset"], piece["rows"], width)
        for first in range(0, len(table), ROWS_AT_ONCE):
            some = np.array(table[first : first + ROWS_AT_ONCE])
            low, high = np.searchsorted(places, [first, first + len(some)])
            content = np.frombuffer(patch.read((high - low) * width), np.uint8)
            some[places[low:high].astype(np.int64) - first] = content.reshape(-1, width)
            yield some.tobytes()


def rows_at(file: Path, offset: int, rows: int, row_bytes: int) -> Array:
    """Return the rows of a table in a file, `[rows, row_bytes]`, mapped into memory."""
    return np.memmap(file, np.uint8, "r", offset, (rows, row_bytes))


def hashes_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, by path relative to the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): sha256_of(file) for file in files}


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise `DamagedExport` if a file of `folder` is unreadable or has a wrong hash.

    `files` has the right SHA-256 of each file, by path in the folder. The error names the first
    such file.
    """
    for name, expected in files.items():
        try:
            digest = sha256_of(folder / name)
        except OSError as error:
            raise DamagedExport(f"{name} cannot be read: {error.strerror}") from None
        if digest != expected:
            raise DamagedExport(f"{name} is not the file that was exported")


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's content, as hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main() -> int:
    """Apply deltas to an export, from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Apply deltas to an export.")
    parser.add_argument("out", help="a new folder")
    parser.add_argument("base", help="a whole export")
    parser.add_argument("deltas", nargs="+", help="folders of deltas, in order")
    args = parser.parse_args()
    try:
        apply_deltas(args.out, args.base, args.deltas)
    except (WrongDelta, DamagedExport, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
