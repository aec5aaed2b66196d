"""Deltas between two exports: which rows of tables and which values of vocabularies changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from distrain.errors import DataError, InputError
from distrain.models import INPUTS_FILE
from distrain.scoring.serving import deltas
from distrain.scoring.serving.deltas import (
    DELTA,
    MANIFEST,
    PATCHES,
    PLACE,
    ROWS_AT_ONCE,
    VOCABULARIES,
    WHOLE,
    Array,
    DamagedExport,
    Delta,
    Entries,
    WrongDelta,
    rows_at,
)
from distrain.storage import scratch_folder, whole_dir


@dataclass(frozen=True)
class DeltaSize:
    """How much a delta changes."""

    rows: int  # of all tables after it
    changed_rows: int  # new ones among them
    dropped_rows: int
    new_values: int  # of vocabularies
    dropped_values: int


@contextmanager
def previous_export(folder: Path) -> Iterator[Path]:
    """A whole export: the folder itself, or of a delta what it makes, beside it for a while.

    Raises:
        InputError: The folder is neither.
        DataError: What a delta was made since is not there any more, or a file was changed.
    """
    try:
        base, *chain = _chain(folder)
        if not chain:
            deltas.verified(base)
            yield base
            return
        with scratch_folder(folder.absolute().parent) as scratch:
            whole = Path(scratch) / "whole"
            deltas.apply_deltas(whole, base, chain)
            yield whole
    except (DamagedExport, WrongDelta) as error:
        raise DataError(
            f"the export before cannot be read: {error}",
            where={"since": str(folder)},
            hint="Write a whole export, without --since.",
        ) from None


def _chain(folder: Path) -> list[Path]:
    """A whole export, and the deltas from it to the one in the folder."""
    chain = [folder.absolute()]
    while (chain[0] / DELTA).exists():
        base = Path(os.path.normpath(chain[0] / Delta(chain[0]).document["since"]))
        if base in chain:
            raise WrongDelta(f"{base.name} is one of the deltas that follow it")
        chain.insert(0, base)
    if not (chain[0] / MANIFEST).exists():
        raise InputError(
            f"the delta {chain[1]} was made since an export that is not there"
            if chain[1:]
            else "no export to compare with: it has no manifest",
            where={"folder": str(chain[0])},
            hint="Give --since a folder that `distrain export` wrote. What a delta was made since "
            "must stay where it was, seen from the delta.",
        )
    return chain


def write_delta(
    path: str | Path, since: Path, before: Path, after: Path, *, replace: bool = False
) -> DeltaSize:
    """Write what makes one whole export of another.

    Args:
        since: The folder that `before` is the whole export of.

    Raises:
        InputError: The exports are of different forms, or the folder is one that the delta needs.
        OutputError: The folder exists and `replace` is false, or it could not be written.
    """
    if Path(path).resolve() in [one.resolve() for one in _chain(since)]:
        raise InputError(
            "a delta cannot take the place of an export that it is made since",
            where={"folder": str(path)},
            hint="Give another folder; to replace this one leave --since out.",
        )
    forms = [_form(folder) for folder in (before, after)]
    if forms[0] != forms[1]:
        raise InputError(
            f"the export before has {forms[0]}, and this one {forms[1]}",
            where={"since": str(since)},
            hint="Give the options of the export before, or leave --since out.",
        )
    old, new = (json.loads((folder / MANIFEST).read_text()) for folder in (before, after))
    with whole_dir(path, replace=replace) as folder:
        writer = _Writer(before, after, folder)
        for name, found in new["files"].items():
            if name not in old["files"]:
                writer.add_whole(name)
            elif found != old["files"][name]:
                writer.add(name)
        writer.add_whole(MANIFEST)
        source = Path(str(deltas.__file__))
        shutil.copyfile(source, folder / source.name)
        document = {
            "format": deltas.FORMAT,
            "since": os.path.relpath(since.absolute(), Path(path).absolute()),
            "before": old["version"],
            "after": new["version"],
            "files": new["files"] | {MANIFEST: deltas.sha256_of(after / MANIFEST)},
            PATCHES: writer.patches,
            VOCABULARIES: sorted(writer.vocabularies),
            "rows": asdict(writer.size),
            "own": deltas.hashes_of(folder),
        }
        text = json.dumps(deltas.signed(document), indent=1, ensure_ascii=False)
        (folder / DELTA).write_text(text + "\n", encoding="utf-8")
    return writer.size


def _form(folder: Path) -> str:
    described = json.loads((folder / INPUTS_FILE).read_text())
    model = ", ".join(sorted(file.name for file in folder.glob("model.*")))
    workflow = "" if (folder / VOCABULARIES).exists() else "out"
    return f"{model} with tables of {described['tables']['form']}, with{workflow} the workflow"


class _Writer:
    """Writes the files of a delta one by one, and counts what they change."""

    def __init__(self, before: Path, after: Path, folder: Path):
        self.before, self.after, self.folder = before, after, folder
        self.patches: dict[str, list[dict[str, Any]]] = {}
        self.vocabularies: set[str] = set()
        self._old, self._new = _tables(before), _tables(after)
        self._changed = {place["table"]: 0 for place in self._new}
        self._values = [0, 0]

    @property
    def size(self) -> DeltaSize:
        old, new = ({p["table"]: p["rows"] for p in of} for of in (self._old, self._new))
        dropped = sum(max(0, rows - new.get(table, 0)) for table, rows in old.items())
        changed = sum(self._changed.values())
        return DeltaSize(sum(new.values()), changed, dropped, *self._values)

    def add(self, name: str) -> None:
        """A file that was there before."""
        vocabulary = deltas.vocabulary_of(name)
        places = [place for place in self._new if place["file"] == name]
        if places:
            with (self.after / name).open("rb") as file, self._patch(name) as patch:
                self.patches[name] = list(self._pieces(name, places, file, patch))
        elif vocabulary is None or not self._holds_alike(vocabulary):
            self.add_whole(name)
        elif vocabulary not in self.vocabularies:
            self._add_vocabulary(vocabulary)

    def add_whole(self, name: str) -> None:
        target = self.folder / WHOLE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.after / name, target)

    def _patch(self, name: str) -> BinaryIO:
        path = self.folder / PATCHES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    def _pieces(
        self, name: str, places: list[dict[str, Any]], file: BinaryIO, patch: BinaryIO
    ) -> Iterator[dict[str, Any]]:
        """What `deltas.patched` reads; what stands between tables is taken whole."""
        had = {(p["table"], p["part"]): p for p in self._old if p["file"] == name}
        for place in places:
            yield {"bytes": patch.write(file.read(place["offset"] - file.tell()))}
            old = had.get((place["table"], place["part"]), {"row_bytes": None})
            if old["row_bytes"] != place["row_bytes"]:
                old = {"offset": 0, "rows": 0}
            rows, width = place["rows"], place["row_bytes"]
            table = rows_at(self.after / name, place["offset"], rows, width)
            before = rows_at(self.before / name, old["offset"], min(rows, old["rows"]), width)
            changed = _changed(before, table)
            patch.write(changed.astype(PLACE).tobytes())
            for first in range(0, len(changed), ROWS_AT_ONCE):
                patch.write(table[changed[first : first + ROWS_AT_ONCE]].tobytes())
            self._changed[place["table"]] = max(self._changed[place["table"]], len(changed))
            yield {
                "table": place["table"],
                "part": place["part"],
                "rows": rows,
                "row_bytes": width,
                "changed": len(changed),
                "old_rows": old["rows"],
                "old_offset": old["offset"],
            }
            file.seek(rows * width, os.SEEK_CUR)
        yield {"bytes": patch.write(file.read())}

    def _holds_alike(self, vocabulary: str) -> bool:
        """Whether it held texts before if it holds texts now."""
        texts = f"{VOCABULARIES}/{vocabulary}.text.npy"
        return (self.before / texts).exists() == (self.after / texts).exists()

    def _add_vocabulary(self, name: str) -> None:
        old, new = (Entries.load(one / VOCABULARIES, name) for one in (self.before, self.after))
        gone, fresh = _apart(old, new), _apart(new, old)
        added = {k: v for k, v in new.take(fresh)._asdict().items() if v is not None}
        with self._patch(f"{VOCABULARIES}/{name}.npz") as file:
            np.savez(file, tombstones=old.ids[gone], **added)
        self.vocabularies.add(name)
        self._values = [self._values[0] + len(fresh), self._values[1] + len(gone)]


def _tables(folder: Path) -> list[dict[str, Any]]:
    """Where the rows of tables lie, in the order of their bytes."""
    described = json.loads((folder / INPUTS_FILE).read_text())
    places: list[dict[str, Any]] = described["tables"]["places"]
    return sorted(places, key=lambda place: (place["file"], place["offset"]))


def _changed(before: Array, table: Array) -> Array:
    """The places of rows that are new or have other bytes."""
    found = [np.arange(len(before), len(table))]
    for first in range(0, len(before), ROWS_AT_ONCE):
        some = slice(first, min(first + ROWS_AT_ONCE, len(before)))
        found.append(np.flatnonzero((before[some] != table[some]).any(axis=1)) + first)
    return np.sort(np.concatenate(found))


def _apart(some: Entries, others: Entries) -> Array:
    """The places of the values that do not have their id among the others."""
    if not len(others.ids):
        return np.arange(len(some.ids))
    order = np.argsort(others.ids)
    places = np.searchsorted(others.ids, some.ids, sorter=order).clip(max=len(order) - 1)
    at = order[places]
    same = (others.ids[at] == some.ids) & (others.keys[at] == some.keys)
    if some.lengths is not None and others.lengths is not None:
        same &= others.lengths[at] == some.lengths
        alike = np.flatnonzero(same)
        one, other = some.take(alike), others.take(at[alike])
        # Texts of one checksum and one length may differ.
        differing = np.flatnonzero(one.text != other.text)
        ends = np.cumsum(some.lengths[alike])
        same[alike[np.searchsorted(ends, differing, side="right")]] = False
    return np.flatnonzero(~same)
