"""What makes the next export of one: rows of tables that changed, and small files whole.

    python deltas.py OUT BASE DELTA ...    writes to OUT what the deltas make of BASE, in order

It stands in every folder that `distrain export --since` wrote, and needs NumPy alone. Beside it:

    delta.json    versions before and after, hashes of files, and how they are made anew
    whole/        files that are new, or changed otherwise than by rows
    patches/      of a file with tables: what stands between them, and their changed rows;
                  of a vocabulary: values that are gone, and new ones
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
from typing import Any, BinaryIO, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

FORMAT = 1
MANIFEST, DELTA = "manifest.json", "delta.json"
WHOLE, PATCHES, VOCABULARIES = "whole", "patches", "vocabularies"
ROWS_AT_ONCE = 65536
PLACE = np.dtype("<u4")
"""Of the place of a changed row in its table."""


class DamagedExport(Exception):
    """A file of the folder is missing, or is not the one that was exported."""


class WrongDelta(Exception):
    """A delta does not go on from where an export is."""


class Entries(NamedTuple):
    """Values of a vocabulary.

    Attributes:
        keys: Whole numbers, or the CRC-32 of texts.
        ids: Of the values.
        lengths: Of texts, their bytes; else `None`.
        text: Of texts, their UTF-8, one after another; else `None`.
    """

    keys: Array
    ids: Array
    lengths: Array | None = None
    text: Array | None = None

    def take(self, places: Array) -> Entries:
        keys, ids = self.keys[places], self.ids[places]
        if self.lengths is None or self.text is None:
            return Entries(keys, ids)
        starts = (np.cumsum(self.lengths) - self.lengths)[places]
        lengths = self.lengths[places]
        pieces = [np.zeros(0, np.uint8)]
        for first in range(0, len(places), ROWS_AT_ONCE):
            some = slice(first, first + ROWS_AT_ONCE)
            ends = np.cumsum(lengths[some])
            at = np.repeat(starts[some] - (ends - lengths[some]), lengths[some])
            pieces.append(self.text[at + np.arange(len(at))])
        return Entries(keys, ids, lengths, np.concatenate(pieces))

    def and_of(self, other: Entries) -> Entries:
        keys, ids = (np.concatenate([a, b]) for a, b in zip(self[:2], other[:2], strict=True))
        if self.lengths is None or self.text is None or other.lengths is None or other.text is None:
            return Entries(keys, ids)
        lengths = np.concatenate([self.lengths, other.lengths])
        return Entries(keys, ids, lengths, np.concatenate([self.text, other.text]))

    def save(self, folder: Path, name: str) -> None:
        """Write the files that `preprocess.Vocabulary` reads, in rising order of the keys."""
        ordered = self.take(np.lexsort((self.ids, self.keys)))
        files = {"keys": ordered.keys, "ids": ordered.ids.astype(np.int32)}
        if ordered.lengths is not None and ordered.text is not None:
            files["offsets"] = np.append(0, np.cumsum(ordered.lengths)).astype(np.int64)
            files["text"] = ordered.text
        for what, content in files.items():
            np.save(folder / f"{name}.{what}.npy", content)

    @classmethod
    def load(cls, folder: Path, name: str) -> Entries:
        def of(what: str) -> Array:
            found: Array = np.load(folder / f"{name}.{what}.npy")
            return found

        if not (folder / f"{name}.text.npy").exists():
            return cls(of("keys"), of("ids"))
        return cls(of("keys"), of("ids"), np.diff(of("offsets")), of("text"))


class Delta:
    """A folder that `distrain export --since` wrote.

    Attributes:
        before, after: The versions of the exports before and after it.
        files: The SHA-256 of each file after it.

    Raises:
        DamagedExport: A file of it is missing, or is not the one that was written.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.name = self.folder.name
        self.document = _signed(self.folder / DELTA)
        try:
            self.before, self.after, self.files, own = (
                self.document[key] for key in ("before", "after", "files", "own")
            )
            names = [*self.files, *self.document[VOCABULARIES]]
        except KeyError as error:
            raise DamagedExport(f"{DELTA} of {self.name} lacks {error}") from None
        if any(".." in name.split("/") or name.startswith("/") for name in names):
            raise DamagedExport(f"{DELTA} of {self.name} names files outside of its folder")
        check_files(self.folder, own)


def verified(folder: Path) -> dict[str, Any]:
    """The manifest of an export.

    Raises:
        DamagedExport: A file is missing, or is not the one that was exported.
    """
    manifest = _signed(folder / MANIFEST)
    check_files(folder, manifest["files"])
    return manifest


def signed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its version: a hash of all that it says."""
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
    """Write the export that deltas make of another: the same files, bit by bit.

    Args:
        out: A folder that does not exist yet; it appears whole or not at all.
        base: A whole export.
        deltas: Folders, each made since the export that those before it make.

    Raises:
        WrongDelta: A delta is missing, comes twice or is out of order; it is named.
        DamagedExport: A file is not the one that was exported; it is named.
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
        folder.rename(final)


def check_chain(version: str, base: str, deltas: Sequence[Delta]) -> None:
    """Refuse deltas of which one does not go on from the version before it."""
    been, at = {version}, base
    for place, delta in enumerate(deltas):
        if delta.before != version:
            here = f"{delta.name} goes on from version {delta.before[:12]}, and {at} is version "
            here += version[:12]
            others = [one.name for one in deltas[place + 1 :] if one.before == version]
            if delta.after in been:
                why = f"{delta.name} was applied already"
            elif others:
                why = f"{others[0]} comes first"
            else:
                why = "a delta between them is missing, or this is another export"
            raise WrongDelta(f"{here}: {why}")
        version, at = delta.after, delta.name
        been.add(version)


def _make(before: Path, delta: Delta, after: Path) -> None:
    patches, vocabularies = (delta.document[key] for key in (PATCHES, VOCABULARIES))
    for name in delta.files:
        (after / name).parent.mkdir(parents=True, exist_ok=True)
        whole = delta.folder / WHOLE / name
        if name in patches:
            with (
                (delta.folder / PATCHES / name).open("rb") as patch,
                (after / name).open("wb") as file,
            ):
                for piece in patched(before / name, patches[name], patch):
                    file.write(piece)
        elif whole.exists():
            shutil.copyfile(whole, after / name)
        elif vocabulary_of(name) not in vocabularies:
            shutil.copyfile(before / name, after / name)
    for name in vocabularies:
        old = Entries.load(before / VOCABULARIES, name)
        with np.load(delta.folder / PATCHES / VOCABULARIES / f"{name}.npz") as patch:
            texts = (patch[key] for key in ("lengths", "text") if key in patch)
            new = Entries(patch["keys"], patch["ids"], *texts)
            kept = np.flatnonzero(~np.isin(old.ids, patch["tombstones"]))
        old.take(kept).and_of(new).save(after / VOCABULARIES, name)


def patched(old: Path, pieces: Sequence[Mapping[str, Any]], patch: BinaryIO) -> Iterator[bytes]:
    """The content of a file, from that before it and the pieces of its patch."""
    for piece in pieces:
        if "bytes" in piece:
            yield patch.read(piece["bytes"])
            continue
        rows, changed = piece["rows"], piece["changed"]
        places = np.frombuffer(patch.read(changed * PLACE.itemsize), PLACE)
        width, had = piece["row_bytes"], min(rows, piece["old_rows"])
        table = rows_at(old, piece["old_offset"], had, width)
        for first in range(0, rows, ROWS_AT_ONCE):
            some = np.empty((min(ROWS_AT_ONCE, rows - first), width), np.uint8)
            kept = table[first : first + len(some)]
            some[: len(kept)] = kept
            low, high = np.searchsorted(places, [first, first + len(some)])
            content = np.frombuffer(patch.read((high - low) * width), np.uint8)
            some[places[low:high] - first] = content.reshape(-1, width)
            yield some.tobytes()


def rows_at(file: Path, offset: int, rows: int, row_bytes: int) -> Array:
    """Rows of a table in a file, `[rows, row_bytes]`, mapped into memory."""
    if not rows:
        return np.zeros((0, row_bytes), np.uint8)
    return np.memmap(file, np.uint8, "r", offset, (rows, row_bytes))


def vocabulary_of(name: str) -> str | None:
    """The vocabulary whose values or ids a file of an export holds."""
    folder, _, file = name.rpartition("/")
    vocabulary, *what = file.rsplit(".", 2)
    is_part = folder == VOCABULARIES and what[0] in ("keys", "ids", "offsets", "text")
    return vocabulary if is_part else None


def hashes_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of all files of a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): sha256_of(file) for file in files}


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise a `DamagedExport` that names a file which does not have its hash."""
    for name, wanted in files.items():
        try:
            found = sha256_of(folder / name)
        except OSError as error:
            raise DamagedExport(f"{name} cannot be read: {error.strerror}") from None
        if found != wanted:
            raise DamagedExport(f"{name} is not the file that was exported")


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main() -> int:
    """Write what deltas make of an export."""
    parser = argparse.ArgumentParser(description="Write what deltas make of an export.")
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
