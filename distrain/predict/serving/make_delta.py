"""Makes deltas between two exports: the changed rows of tables and values of vocabularies."""

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
from distrain.models.export import INPUTS_FILE
from distrain.predict.serving import deltas
from distrain.storage.outputs import atomic_dir, scratch_folder

_BYTES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class DeltaSize:
    """The number of rows and vocabulary values that a delta changes."""

    rows: int  # of all tables after the delta
    changed_rows: int  # rows among these that are new or changed
    dropped_rows: int  # rows by which tables became shorter
    new_values: int  # of vocabularies, including those that replace another value
    dropped_values: int  # values by which vocabularies became shorter


@contextmanager
def previous_export(folder: Path) -> Iterator[Path]:
    """Yield the folder of the complete export that `folder` holds or leads to.

    If `folder` holds a complete export, it is yielded itself. If it holds a delta, the export that
    results from the delta is written to a temporary folder beside it, and that folder is yielded.

    Raises:
        InputError: The folder is neither an export nor a delta, or an export that a delta is based
            on is missing.
        DataError: A file is missing or was changed, or the deltas form a cycle.
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
    except (deltas.DamagedExport, deltas.WrongDelta) as error:
        raise DataError(
            f"the previous export cannot be read: {error}",
            where={"since": str(folder)},
            hint="Write a complete export, without --since.",
        ) from None


def _chain(folder: Path) -> list[Path]:
    """Return the folders of a complete export and of the deltas that lead from it to `folder`.

    The export comes first, `folder` last. If `folder` is a complete export, the list has only
    `folder`. Raises `InputError` if the export is missing, `WrongDelta` if the deltas form a cycle.
    """
    chain = [folder.absolute()]
    while (chain[0] / deltas.DELTA).exists():
        base = Path(os.path.normpath(chain[0] / deltas.Delta(chain[0]).document["since"]))
        if base in chain:
            raise deltas.WrongDelta(f"{base.name} is one of the deltas that follow it")
        chain.insert(0, base)
    if not (chain[0] / deltas.MANIFEST).exists():
        raise InputError(
            f"the delta {chain[1]} is based on an export that is missing"
            if chain[1:]
            else "not an export: the folder has no manifest",
            where={"folder": str(chain[0])},
            hint="Give --since a folder that `distrain export` wrote. The base of a delta "
            "must keep its place relative to the delta.",
        )
    return chain


def write_delta(
    path: str | Path, since: Path, before: Path, after: Path, *, replace: bool = False
) -> DeltaSize:
    """Write a folder with the changes from the complete export `before` to the complete `after`.

    Args:
        path: The folder to write.
        since: The export or delta that `before` was made from; the delta names this folder.
        replace: Whether `path` may be replaced.

    Raises:
        InputError: The exports have different forms, or the delta depends on the folder `path`.
        OutputError: The folder exists and `replace` is false, or it could not be written.
    """
    if Path(path).resolve() in [one.resolve() for one in _chain(since)]:
        raise InputError(
            "a delta cannot replace an export that it is based on",
            where={"folder": str(path)},
            hint="Give another folder. To replace this one, leave --since out.",
        )
    forms = [_form(folder) for folder in (before, after)]
    if forms[0] != forms[1]:
        raise InputError(
            f"the previous export has {forms[0]}, but this one {forms[1]}",
            where={"since": str(since)},
            hint="Give the options of the previous export, or leave --since out.",
        )
    old, new = (json.loads((folder / deltas.MANIFEST).read_text()) for folder in (before, after))
    with atomic_dir(path, replace=replace) as folder:
        writer = _Writer(before, after, folder)
        for name, digest in new["files"].items():
            if name not in old["files"]:
                writer.add_whole(name)
            elif digest != old["files"][name]:
                writer.add(name)
        writer.add_whole(deltas.MANIFEST)
        source = Path(str(deltas.__file__))
        shutil.copyfile(source, folder / source.name)
        document = {
            "format": deltas.FORMAT,
            "since": os.path.relpath(since.absolute(), Path(path).absolute()),
            "before": old["version"],
            "after": new["version"],
            "files": new["files"] | {deltas.MANIFEST: deltas.sha256_of(after / deltas.MANIFEST)},
            deltas.PATCHES: writer.patches,
            "rows": asdict(writer.size),
            "own": deltas.hashes_of(folder),
        }
        text = json.dumps(deltas.signed(document), indent=1, ensure_ascii=False)
        (folder / deltas.DELTA).write_text(text + "\n", encoding="utf-8")
    return writer.size


def _form(folder: Path) -> str:
    """Return, as a text, the properties that both exports of a delta must have in common.

    They are the model's files, the form of the tables, and whether there is a workflow.
    """
    described = json.loads((folder / INPUTS_FILE).read_text())
    model = ", ".join(sorted(file.name for file in folder.glob("model.*")))
    workflow = "" if (folder / deltas.VOCABULARIES).exists() else "out"
    return f"{model} with tables of {described['tables']['form']}, with{workflow} the workflow"


class _Writer:
    """Writes the files of a delta one by one, and counts the changes."""

    def __init__(self, before: Path, after: Path, folder: Path):
        self.before, self.after, self.folder = before, after, folder
        self.patches: dict[str, list[dict[str, Any]]] = {}
        self._old, self._new = _tables(before), _tables(after)
        had = {place["table"] for place in self._old}
        # All rows are new in tables that are in new files, which are copied.
        self._changed = {p["table"]: p["rows"] for p in self._new if p["table"] not in had}

    @property
    def size(self) -> DeltaSize:
        old, new = ({p["table"]: p["rows"] for p in of} for of in (self._old, self._new))
        rows = {table for table in (*old, *new) if not table.startswith(f"{deltas.VOCABULARIES}/")}
        values = {table for table in {*old, *new} - rows if table.endswith(deltas.KEYS)}

        def changed(tables: set[str]) -> tuple[int, int]:
            gone = (old.get(table, 0) - new.get(table, 0) for table in tables)
            now = (self._changed.get(table, 0) for table in tables)
            return sum(now), sum(max(0, number) for number in gone)

        return DeltaSize(sum(new.get(name, 0) for name in rows), *changed(rows), *changed(values))

    def add(self, name: str) -> None:
        """Add a file that both exports have and that has changed.

        A file with tables is added as a patch, others whole. Files of a vocabulary's sort order are
        skipped, since they follow from its keys.
        """
        places = [place for place in self._new if place["file"] == name]
        if places:
            path = self.folder / deltas.PATCHES / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with (self.after / name).open("rb") as file, path.open("wb") as patch:
                self.patches[name] = list(self._pieces(name, places, file, patch))
        elif not name.endswith(deltas.ORDER):  # the order follows from the keys
            self.add_whole(name)

    def add_whole(self, name: str) -> None:
        target = self.folder / deltas.WHOLE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.after / name, target)

    def _pieces(
        self, name: str, places: list[dict[str, Any]], file: BinaryIO, patch: BinaryIO
    ) -> Iterator[dict[str, Any]]:
        """Write a file's patch; yield the descriptions of its pieces for `deltas.patched`.

        New rows and the bytes between tables are copied. A whole table is copied if its changed
        rows and their indices would take at least as many bytes, or if its rows have another size
        than in the old export.

        Args:
            name: The path of the file in the export.
            places: The entries of the file's tables (see `_tables`), ordered by offset.
            file: The file in the new export, to read.
            patch: The patch to write.
        """
        had = {(p["table"], p["part"]): p for p in self._old if p["file"] == name}
        for place in places:
            table, width = place["table"], place["row_bytes"]
            old = had.get((table, place["part"]), {"row_bytes": None})
            rows = min(place["rows"], old["rows"]) if old["row_bytes"] == width else 0
            changed = np.arange(0)
            if rows:
                before = deltas.rows_at(self.before / name, old["offset"], rows, width)
                after = deltas.rows_at(self.after / name, place["offset"], rows, width)
                changed = _changed(before, after)
            now_changed = len(changed) + place["rows"] - rows
            self._changed[table] = max(self._changed.get(table, 0), now_changed)
            if len(changed) * (deltas.PLACE.itemsize + width) >= rows * width:
                continue
            yield from _copied(file, patch, place["offset"])
            patch.write(changed.astype(deltas.PLACE).tobytes())
            for first in range(0, len(changed), deltas.ROWS_AT_ONCE):
                patch.write(after[changed[first : first + deltas.ROWS_AT_ONCE]].tobytes())
            at = {"rows": rows, "row_bytes": width, "old_offset": old["offset"]}
            yield at | {"changed": len(changed)}
            file.seek(rows * width, os.SEEK_CUR)
        yield from _copied(file, patch, (self.after / name).stat().st_size)


def _copied(file: BinaryIO, patch: BinaryIO, end: int) -> Iterator[dict[str, int]]:
    while (left := end - file.tell()) > 0:
        yield {"bytes": patch.write(file.read(min(left, _BYTES_AT_ONCE)))}


def _tables(folder: Path) -> list[dict[str, Any]]:
    """Return the positions of an export's tables and vocabularies, ordered by file and offset.

    Each entry has `table`, `part` (which tensor of the table, such as its values or scales; "" for
    a vocabulary), `file`, `offset` (in bytes), `rows` and `row_bytes`.
    """
    described = json.loads((folder / INPUTS_FILE).read_text())
    places: list[dict[str, Any]] = list(described["tables"]["places"])
    for file in (folder / deltas.VOCABULARIES).glob("*.npy"):
        if not file.name.endswith(deltas.ORDER):
            array, name = np.load(file, mmap_mode="r"), f"{deltas.VOCABULARIES}/{file.name}"
            at = {"table": name, "part": "", "file": name, "rows": len(array)}
            at["offset"] = file.stat().st_size - array.nbytes
            places.append(at | {"row_bytes": array.itemsize})
    return sorted(places, key=lambda place: (place["file"], place["offset"]))


def _changed(before: deltas.Array, after: deltas.Array) -> deltas.Array:
    """Return the indices of rows whose bytes differ, ascending."""
    changed = [np.arange(0)]
    for first in range(0, len(before), deltas.ROWS_AT_ONCE):
        some = slice(first, first + deltas.ROWS_AT_ONCE)
        changed.append(np.flatnonzero((before[some] != after[some]).any(axis=1)) + first)
    return np.concatenate(changed)
